"""A bail-out game of banks: callbacks that look from agents to their policies' configs, an evaluation of one's own.

Uses RLlib as a study of financial rescue games does (its run.py and utils): `episode._agent_to_policy`,
`episode._policies[...]` and keys of one's own in a policy's config, `base_env.envs[0].config`, DQN policies side by
side, `custom_eval_function` with `collect_episodes` and `summarize_episodes` over remote evaluation workers.
"""

import gym
import numpy as np
import ray

from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.agents.dqn import DQNTrainer, DQNTorchPolicy
from rlframe.env.multi_agent_env import MultiAgentEnv
from rlframe.evaluation.metrics import collect_episodes, summarize_episodes


class Rescue(MultiAgentEnv):
    """Two banks give to a third; it is saved if they give enough between them, and each rather keeps its own."""

    def __init__(self, config):
        super().__init__()
        self.config = dict(config)
        self.observation_space = gym.spaces.Box(0.0, 20.0, (3,), np.float32)
        self.action_space = gym.spaces.Discrete(6)

    def reset(self):
        return {i: np.array([5, 5, 12], np.float32) for i in range(2)}

    def step(self, actions):
        given = [int(actions[i]) for i in range(2)]
        saved = sum(given) >= self.config["rescue_amount"]
        rewards = {}
        for i in range(2):
            beta = self.config.get("agent_%d_beta" % i, 0)
            own = (3 if saved else 0) - given[i]
            rewards[i] = float(own - beta * max(0, given[i] - given[1 - i]))
        last = {i: np.array([5 - given[0], 5 - given[1], 12], np.float32) for i in range(2)}
        infos = {i: {"actual_allocation": given[i]} for i in range(2)}
        return last, rewards, {"__all__": True}, infos


class Betas(DefaultCallbacks):
    def on_episode_step(self, *, worker, base_env, episode, env_index=None, **kwargs):
        for agent in range(2):
            name = episode._agent_to_policy[agent]
            beta = episode._policies[name].config.get("beta")
            base_env.envs[0].config["agent_%d_beta" % agent] = beta
            worker.env.config["agent_%d_policy" % agent] = name

    def on_episode_end(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        assert worker.env.config["agent_1_policy"] == "policy_1"
        epsilon = policies["policy_0"].exploration.get_info()["cur_epsilon"]
        episode.custom_metrics["current_epsilon"] = epsilon
        for agent in range(2):
            episode.custom_metrics["%d_actual_allocation" % agent] = episode.last_info_for(agent)["actual_allocation"]


def evaluate(trainer, eval_workers):
    worker = eval_workers.remote_workers()[0]
    worker.foreach_env.remote(lambda env: env.reset())
    ray.get([w.sample.remote() for w in eval_workers.remote_workers()])
    episodes, _ = collect_episodes(remote_workers=eval_workers.remote_workers(), timeout_seconds=99999)
    metrics = summarize_episodes(episodes)
    own = episodes[0].custom_metrics
    metrics["given"] = own["0_actual_allocation"] + own["1_actual_allocation"]
    return metrics


def main():
    ray.init(num_cpus=2, include_dashboard=False)
    space = Rescue({}).observation_space, Rescue({}).action_space
    config = {
        "env": Rescue,
        "env_config": {"rescue_amount": 7},
        "callbacks": Betas,
        "framework": "torch",
        "num_workers": 0,
        "multiagent": {
            "policies": {"policy_%d" % i: (DQNTorchPolicy, *space, {"beta": 0.5 * i, "gamma": 0.5}) for i in range(2)},
            "policy_mapping_fn": lambda agent_id, **kwargs: "policy_%d" % agent_id,
        },
        "learning_starts": 50,
        "timesteps_per_iteration": 200,
        "exploration_config": {"initial_epsilon": 0.9, "final_epsilon": 0.1, "epsilon_timesteps": 300},
        "evaluation_interval": 1,
        "evaluation_num_workers": 1,
        "evaluation_num_episodes": 1,
        "custom_eval_function": evaluate,
    }
    trainer = DQNTrainer(config)
    for _ in range(2):
        result = trainer.train()
    assert 0.09 < result["custom_metrics"]["current_epsilon_mean"] < 0.9, result["custom_metrics"]
    assert 0 <= result["evaluation"]["given"] <= 10
    assert trainer.get_policy("policy_1").config["beta"] == 0.5
    assert trainer.workers.local_worker().env.config["agent_1_beta"] == 0.5
    trainer.stop()
    ray.shutdown()
    print("ok program_rescue_game_callbacks")


if __name__ == "__main__":
    main()
