"""A commons that several harvest: deep Q-learning of all by one policy, four social outcomes of each episode as metrics.

Uses RLlib as the CPR appropriation project of A. Falai does (rllib.py and its callbacks of social outcome metrics):
`class CPRGridEnv(MultiAgentEnv, gym.Env)`, `DQNTrainer` with images and `conv_filters`, callbacks that read
`episode._agent_reward_history`, `base_env.envs[0]` and the last done of `episode.batch_builder.policy_collectors`, and
lists in `hist_data`.
"""

import gym
import numpy as np
import ray
from rlframe.agents import dqn
from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.env.multi_agent_env import MultiAgentEnv
from ray.tune.logger import pretty_print
from ray.tune.registry import register_env


class CPRGridEnv(MultiAgentEnv, gym.Env):
    """Apples on a line grow where others are left; harvesters collect them, or stun who stands beside."""

    def __init__(self, n_agents, size, max_steps, tagging_ability=True):
        super().__init__()
        self.n_agents, self.size, self.max_steps, self.tagging_ability = n_agents, size, max_steps, tagging_ability
        self.observation_space = gym.spaces.Box(0, 255, (size, size, 3), np.uint8)
        self.action_space = gym.spaces.Discrete(4)

    def view(self, handle):
        image = np.zeros((self.size, self.size, 3), np.uint8)
        image[:, :, 1] = 255 * self.apples
        for other, place in enumerate(self.at):
            image[:, place, 0 if other == handle else 2] = 255
        return image

    def reset(self):
        self.t, self.at = 0, list(range(self.n_agents))
        self.apples = np.ones(self.size, bool)
        self.tagging_history, self.tagged = [], {}
        return {handle: self.view(handle) for handle in range(self.n_agents)}

    def step(self, actions):
        self.t += 1
        rewards = {handle: 0 for handle in actions}
        for handle, action in actions.items():
            if self.tagged.get(handle, 0) > self.t:
                continue
            if action == 3 and self.tagging_ability:
                near = [h for h in actions if h != handle and abs(self.at[h] - self.at[handle]) <= 1]
                self.tagged.update(dict.fromkeys(near, self.t + 3))
            else:
                self.at[handle] = (self.at[handle] + [-1, 0, 1, 0][action]) % self.size
            if self.apples[self.at[handle]]:
                self.apples[self.at[handle]], rewards[handle] = False, 1
        self.tagging_history.append([h for h, until in self.tagged.items() if until > self.t])
        self.apples |= np.random.rand(self.size) < 0.1 * (np.roll(self.apples, 1) + np.roll(self.apples, -1))
        done = self.t >= self.max_steps
        views = {handle: self.view(handle) for handle in actions}
        return views, rewards, {**dict.fromkeys(actions, done), "__all__": done}, {handle: {} for handle in actions}


class SocialOutcomeMetrics(DefaultCallbacks):
    def outcomes(self, episode, base_env):
        env, agents = base_env.envs[0], episode.get_agents()
        histories = [episode._agent_reward_history[handle] for handle in agents]
        returns = [np.sum(rewards) for rewards in histories]
        differences = np.sum([abs(one - other) for one in returns for other in returns])
        times = [np.argwhere(np.array(rewards) > 0) for rewards in histories]
        stunned = sum(len(tagged) for tagged in env.tagging_history)
        return {
            "efficiency": np.sum(returns) / episode.length,
            "equality": 1 - differences / (2 * len(returns) * np.sum(returns) + 1e-6),
            "sustainability": np.mean([env.max_steps if len(t) == 0 else np.mean(t) for t in times]),
            "peace": (len(agents) * episode.length - stunned) / episode.length if env.tagging_ability else np.nan,
        }

    def on_episode_start(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        assert episode.length == 0, "Start callback should only be called after resetting the environment"
        for name in ("efficiency", "equality", "sustainability", "peace"):
            episode.user_data[name], episode.hist_data[name] = [], []

    def on_episode_step(self, *, worker, base_env, episode, env_index, **kwargs):
        assert episode.length > 0, "Step callback should only be called after stepping in the environment"
        for name, value in self.outcomes(episode, base_env).items():
            episode.user_data[name].append(value)

    def on_episode_end(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        collectors = episode.batch_builder.policy_collectors
        assert collectors["default_policy"].batches[-1]["dones"][-1], "the episode is done"
        for name in ("efficiency", "equality", "sustainability", "peace"):
            episode.custom_metrics[name] = np.mean(episode.user_data[name])
            episode.hist_data[name] = episode.user_data[name]


def main():
    ray.init(num_cpus=2, include_dashboard=False)
    register_env("CPRGridEnv-v0", lambda config: CPRGridEnv(**config))
    trainer = dqn.DQNTrainer(
        env="CPRGridEnv-v0",
        config={
            "env_config": {"n_agents": 3, "size": 10, "max_steps": 25}, "num_gpus": 0, "num_workers": 1, "framework": "torch",
            "model": {"conv_filters": [[4, [3, 3], 2], [8, [5, 5], 1]]},
            "lr": 5e-4, "gamma": 0.99, "learning_starts": 50, "buffer_size": 1000, "train_batch_size": 16,
            "rollout_fragment_length": 25, "timesteps_per_iteration": 100, "target_network_update_freq": 100,
            "exploration_config": {"type": "EpsilonGreedy", "initial_epsilon": 1.0, "final_epsilon": 0.1,
                                   "epsilon_timesteps": 200},
            "callbacks": SocialOutcomeMetrics, "no_done_at_end": False, "horizon": 25, "log_level": "ERROR",
        },
    )  # fmt: skip
    for _ in range(2):
        result = trainer.train()
    print(pretty_print(result))
    metrics = result["custom_metrics"]
    assert {"efficiency_mean", "equality_mean", "sustainability_mean", "peace_mean"} <= metrics.keys(), metrics
    assert 0 < metrics["peace_mean"] <= 3
    assert len(result["hist_stats"]["efficiency"]) >= 25
    actions = trainer.compute_actions(CPRGridEnv(3, 10, 25).reset())
    assert set(actions) == {0, 1, 2}
    ray.shutdown()
    print("ok program_commons_harvest")


if __name__ == "__main__":
    main()
