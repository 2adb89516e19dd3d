"""An economy of firms: Dict spaces by agent number, metrics from infos and previous rewards, results read from Tune.

Uses RLlib as matiascovarrubiasc/marketsai does (its experiments on monetary policy): integer agent ids, callbacks that
read `prev_reward_for` and `last_info_for`, `vf_clip_param` inf, `evaluation_config` with an env_config of its own, and
`analysis.results`, `analysis.trials` and `analysis.trial_dataframes` after `tune.run`.
"""

import tempfile
from typing import Dict

import numpy as np
import ray
from gym.spaces import Box, MultiDiscrete
from gym.spaces import Dict as DictSpace
from rlframe import tune
from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.env import BaseEnv
from rlframe.env.multi_agent_env import MultiAgentEnv
from rlframe.evaluation import MultiAgentEpisode, RolloutWorker
from rlframe.policy import Policy
from rlframe.tune.registry import register_env

HORIZON = 20
BETA = 0.95 ** (1 / 12)


class Firms(MultiAgentEnv):
    """Each firm keeps or moves its price; profits fall with the distance to a drifting best price."""

    def __init__(self, env_config=None):
        super().__init__()
        self.n_firms, self.eval_mode = env_config["n_firms"], env_config["eval_mode"]
        self.observation_space = {i: DictSpace({"price": Box(-9, 9, (1,)), "best": Box(-9, 9, (1,))}) for i in range(self.n_firms)}
        self.action_space = {i: MultiDiscrete([2, 3]) for i in range(self.n_firms)}
        self.random = np.random.RandomState(env_config["seed_eval"] if self.eval_mode else None)

    def observe(self):
        return {
            i: {"price": np.array([self.prices[i]], np.float32), "best": np.array([self.best], np.float32)}
            for i in range(self.n_firms)
        }

    def reset(self):
        self.t, self.best = 0, 0.0
        self.prices = np.zeros(self.n_firms)
        return self.observe()

    def step(self, actions):
        moves = np.array([actions[i][0] * (actions[i][1] - 1) for i in range(self.n_firms)], float)
        self.prices = np.clip(self.prices + 0.2 * moves, -8, 8)
        self.best = float(np.clip(self.best + self.random.normal(0, 0.1), -8, 8))
        self.t += 1
        profits = 1 - np.abs(self.prices - self.best)
        infos = {i: {"mean_profits": float(profits.mean()), "move_freq": float((moves != 0).mean())} for i in range(self.n_firms)}
        done = {"__all__": self.t >= HORIZON}
        return self.observe(), {i: float(profits[i]) for i in range(self.n_firms)}, done, infos


class Metrics(DefaultCallbacks):
    def on_episode_start(self, *, worker: RolloutWorker, base_env: BaseEnv, policies: Dict[str, Policy],
                         episode: MultiAgentEpisode, env_index: int, **kwargs):
        assert episode.length == 0, "called right after reset"
        episode.user_data["rewards"] = []
        episode.user_data["profits"] = []

    def on_episode_step(self, *, worker: RolloutWorker, base_env: BaseEnv, episode: MultiAgentEpisode, env_index: int,
                        **kwargs):
        if episode.length > 1:
            episode.user_data["rewards"].append(episode.prev_reward_for(0))
            episode.user_data["profits"].append(episode.last_info_for(0)["mean_profits"])

    def on_episode_end(self, *, worker: RolloutWorker, base_env: BaseEnv, policies: Dict[str, Policy],
                       episode: MultiAgentEpisode, env_index: int, **kwargs):
        value = 0.0
        for reward in reversed(episode.user_data["rewards"]):
            value = value * BETA + reward
        episode.custom_metrics["discounted_rewards"] = value
        episode.custom_metrics["profits"] = np.mean(episode.user_data["profits"])


def main():
    ray.shutdown()
    ray.init(num_cpus=2, log_to_driver=False)
    register_env("firms", Firms)
    env_config = {"n_firms": 2, "eval_mode": False, "seed_eval": 10}
    env = Firms(env_config)
    firm = (None, env.observation_space[0], env.action_space[0], {})
    config = {
        "callbacks": Metrics,
        "gamma": BETA,
        "env": "firms",
        "env_config": env_config,
        "horizon": HORIZON,
        "framework": "torch",
        "num_workers": 0,
        "create_env_on_driver": False,
        "num_cpus_for_driver": 1,
        "rollout_fragment_length": HORIZON,
        "train_batch_size": 2 * HORIZON,
        "evaluation_interval": 2,
        "evaluation_num_episodes": 1,
        "evaluation_config": {"horizon": HORIZON, "explore": False, "env_config": {**env_config, "eval_mode": True}},
        "multiagent": {
            "policies": {"firm_even": firm, "firm_odd": firm},
            "policy_mapping_fn": (lambda agent_id: "firm_even" if agent_id % 2 == 0 else "firm_odd"),
        },
        "lr_schedule": [[0, 0.00005], [100000, 0.00001]],
        "sgd_minibatch_size": 2 * HORIZON,
        "num_sgd_iter": 1,
        "batch_mode": "complete_episodes",
        "vf_clip_param": float("inf"),
        "clip_actions": True,
    }
    with tempfile.TemporaryDirectory() as folder:
        analysis = tune.run("PPO", name="firms_exp", config=config, stop={"timesteps_total": 6 * HORIZON},
                            checkpoint_at_end=True, num_samples=2, local_dir=folder, verbose=0)
        for i in range(2):
            result = list(analysis.results.values())[i]
            assert np.isfinite(result["custom_metrics"]["discounted_rewards_mean"])
            assert analysis.trials[i].checkpoint.value
            assert analysis.trials[i].logdir.startswith(folder), analysis.trials[i].logdir
            assert analysis.trials[i].config["lr_schedule"] == [[0, 0.00005], [100000, 0.00001]]
            frame = list(analysis.trial_dataframes.values())[i]
            assert len(frame[["custom_metrics/discounted_rewards_mean", "custom_metrics/profits_mean"]]) == 3
            evaluated = frame["evaluation/custom_metrics/profits_mean"].dropna()
            assert len(evaluated) >= 1, frame
    ray.shutdown()
    print("ok program_monetary_economy")


if __name__ == "__main__":
    main()
