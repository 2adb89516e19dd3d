"""Phones that choose their base stations: one agent for all, or one network for each; the best checkpoint is tested.

Uses RLlib as CN-UPB/DeepCoMP does (deepcomp/util/simulation.py, env_setup.py, callbacks.py): `DEFAULT_CONFIG.copy()`
with `monitor` and `use_lstm`, classes compared by `__mro__`, callbacks of which one is a static method, `tune.run` of
the trainer class with `checkpoint_score_attr`, `default_metric` set on the analysis, `progress.csv`, and `compute_action` with and without `policy_id` on a restored agent.
"""

import os
from pathlib import Path

import gym
import numpy as np
import pandas as pd
import ray
from rlframe import Policy, tune
from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.agents.ppo import DEFAULT_CONFIG, PPOTrainer
from rlframe.env import BaseEnv
from rlframe.env.multi_agent_env import MultiAgentEnv
from rlframe.evaluation import MultiAgentEpisode
from rlframe.utils.typing import PolicyID


class User:
    def __init__(self, id):
        self.id, self.station = id, 0


class MobileEnv(gym.Env):
    """Users connect to one of two stations, and share what it can send."""

    def __init__(self, env_config):
        self.episode_length, self.ue_list = env_config["episode_length"], env_config["ue_list"]
        self.log_metrics = env_config["log_metrics"]
        n = len(self.ue_list)
        self.observation_space = gym.spaces.Dict(
            {"connected": gym.spaces.MultiBinary(n), "dr": gym.spaces.Box(-1, 1, (n,), np.float32)}
        )
        self.action_space = gym.spaces.MultiDiscrete([2] * n)

    def rates(self):
        load = np.bincount([user.station for user in self.ue_list], minlength=2)
        return np.array([1.0 / load[user.station] for user in self.ue_list], np.float32)

    def central(self):
        return {"connected": np.array([user.station for user in self.ue_list], np.int8), "dr": self.rates()}

    def reset(self):
        self.t = 0
        for user in self.ue_list:
            user.station = 0
        return self.central()

    def advance(self, stations):
        for user, station in zip(self.ue_list, stations):
            user.station = int(station)
        self.t += 1
        info = {"time": self.t}
        if self.log_metrics:
            info["scalar_metrics"] = {"sum_utility": float(self.rates().sum())}
        return self.t >= self.episode_length, info

    def step(self, action):
        done, info = self.advance(action)
        return self.central(), float(self.rates().sum()), done, info


class MultiAgentMobileEnv(MobileEnv, MultiAgentEnv):
    def __init__(self, env_config):
        MobileEnv.__init__(self, env_config)
        self.observation_space = gym.spaces.Dict(
            {"connected": gym.spaces.MultiBinary(2), "dr": gym.spaces.Box(-1, 1, (1,), np.float32)}
        )
        self.action_space = gym.spaces.Discrete(2)

    def observe(self):
        rates = self.rates()
        return {
            user.id: {"connected": np.eye(2, dtype=np.int8)[user.station], "dr": rates[i : i + 1]}
            for i, user in enumerate(self.ue_list)
        }

    def reset(self):
        MobileEnv.reset(self)
        return self.observe()

    def step(self, action):
        done, info = self.advance([action[user.id] for user in self.ue_list])
        rewards = {user.id: float(rate) for user, rate in zip(self.ue_list, self.rates())}
        return self.observe(), rewards, {"__all__": done}, {user.id: info for user in self.ue_list}


class CustomMetricCallbacks(DefaultCallbacks):
    @staticmethod
    def get_info(base_env, episode):
        if hasattr(base_env, "envs") and isinstance(base_env.envs[0], MultiAgentEnv):
            return episode.last_info_for(base_env.envs[0].ue_list[0].id)
        return episode.last_info_for()

    def on_episode_step(self, *, worker, base_env: BaseEnv, episode: MultiAgentEpisode, env_index: int, **kwargs):
        info = self.get_info(base_env, episode)
        if info is not None and "scalar_metrics" in info:
            for name, value in info["scalar_metrics"].items():
                episode.custom_metrics[name] = value
                episode.user_data[f"eps_{name}"] = episode.user_data.get(f"eps_{name}", 0) + value

    @staticmethod
    def on_episode_end(
        *,
        worker,
        base_env: BaseEnv,
        policies: "dict[PolicyID, Policy]",
        episode: MultiAgentEpisode,
        env_index: int,
        **kwargs,
    ):
        for key, value in episode.user_data.items():
            episode.custom_metrics[key] = value


def create_config(env_class, separate=False, lstm=False):
    ue_list = [User(str(i + 1)) for i in range(2)]
    env_config = {"episode_length": 10, "seed": 1, "ue_list": ue_list, "log_metrics": True, "dashboard": False}
    config = DEFAULT_CONFIG.copy()
    config["num_workers"] = 0
    config["seed"] = 1
    config["monitor"] = False
    config["framework"] = "torch"
    config["train_batch_size"] = 200
    config["model"]["use_lstm"] = lstm
    config["horizon"] = 10
    config["env"] = env_class
    config["env_config"] = env_config
    config["callbacks"] = CustomMetricCallbacks
    config["log_level"] = "ERROR"
    if MultiAgentEnv in env_class.__mro__:
        env = env_class(env_config)
        spec = (None, env.observation_space, env.action_space, {})
        if separate:
            config["multiagent"] = {
                "policies": {user.id: spec for user in ue_list},
                "policy_mapping_fn": lambda agent_id: agent_id,
            }
        else:
            config["multiagent"] = {"policies": {"phone": spec}, "policy_mapping_fn": lambda agent_id: "phone"}
    return config


def main():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    config = create_config(MobileEnv)
    analysis = tune.run(
        PPOTrainer,
        config=config,
        local_dir="train",
        stop={"training_iteration": 3},
        checkpoint_at_end=True,
        checkpoint_freq=1,
        keep_checkpoints_num=2,
        checkpoint_score_attr="episode_reward_mean",
        restore=None,
        scheduler=None,
        verbose=0,
    )
    analysis.default_metric, analysis.default_mode = "episode_reward_mean", "max"
    frame = analysis.dataframe()
    assert int(frame["timesteps_total"].iloc[0]) >= 600 and int(frame["info/num_steps_trained"].iloc[0]) >= 600
    assert analysis.get_best_checkpoint(trial=analysis.get_best_trial())
    folder = analysis.get_best_logdir()
    assert any(part.startswith("PPO_") for part in os.path.normpath(folder).split(os.sep)), folder

    config["explore"] = False
    agent = PPOTrainer(config=config, env=MobileEnv)
    path = analysis.get_best_checkpoint(analysis.trials[0])
    agent.restore(path)
    progress = pd.read_csv(Path(folder) / "progress.csv")
    trained = progress[progress["training_iteration"] == agent.training_iteration]["timesteps_total"]
    assert int(trained.iloc[0]) >= 200 and agent.iteration == agent.training_iteration
    env = MobileEnv(config["env_config"])
    obs, done, total = env.reset(), False, 0.0
    while not done:
        obs, reward, done, info = env.step(agent.compute_action(obs))
        total += reward
    assert 10 <= total <= 20, total
    agent.stop()

    for separate, lstm in ((True, False), (False, True)):
        config = create_config(MultiAgentMobileEnv, separate, lstm)
        agent = PPOTrainer(config=config, env=MultiAgentMobileEnv)
        metrics = agent.train()["custom_metrics"]
        assert 10 <= metrics["eps_sum_utility_mean"] <= 20, metrics
        env, mapping = MultiAgentMobileEnv(config["env_config"]), config["multiagent"]["policy_mapping_fn"]
        obs, done = env.reset(), {"__all__": False}
        state = {user: agent.get_policy(mapping(user)).get_initial_state() for user in obs}
        while not done["__all__"]:
            actions = {}
            for user, seen in obs.items():
                if lstm:
                    actions[user], state[user], _ = agent.compute_action(
                        seen, state=state[user], policy_id=mapping(user)
                    )
                else:
                    actions[user] = agent.compute_action(seen, policy_id=mapping(user))
            obs, _, done, _ = env.step(actions)
        agent.stop()
    ray.shutdown()
    print("ok program_mobile_cells")


if __name__ == "__main__":
    main()
