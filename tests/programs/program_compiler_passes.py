"""Choosing compiler passes: a trainer class through Tune, its best checkpoint into an agent that does not explore.

Uses RLlib as facebookresearch/CompilerGym does (examples/rllib.ipynb): `tune.register_env` with `*args`, wrappers around
the environment, `ray.init` with `include_dashboard` and `ignore_reinit_error`, batches of five steps, `episodes_total`
as the stop, and `get_best_checkpoint(metric=, mode=, trial=analysis.trials[0])`.
"""

import gym
import numpy as np
import ray
from rlframe import tune
from rlframe.agents.ppo import PPOTrainer

PASSES = ["gvn", "instcombine", "mem2reg", "sroa", "loop-rotate"]


class Compiler(gym.Env):
    """A program shrinks by a pass whose precondition its features meet."""

    observation_space = gym.spaces.Box(0, np.iinfo(np.int64).max, (8,), np.int64)
    action_space = gym.spaces.Discrete(len(PASSES))

    def __init__(self):
        self.benchmark, self.episode_reward = 0, None

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.close()

    def reset(self, benchmark=None):
        self.benchmark = self.benchmark if benchmark is None else benchmark
        self.features = np.random.RandomState(self.benchmark).randint(1, 50, 8)
        self.episode_reward = 0.0
        return self.features.astype(np.int64)

    def step(self, action):
        before = self.features.sum()
        self.features[action] //= 2
        reward = float(before - self.features.sum()) / 50
        self.episode_reward += reward
        return self.features.astype(np.int64), reward, False, {}


class TimeLimit(gym.Wrapper):
    def __init__(self, env, max_episode_steps):
        super().__init__(env)
        self.limit = max_episode_steps

    def reset(self, **kwargs):
        self.left = self.limit
        return self.env.reset(**kwargs)

    def step(self, action):
        observation, reward, done, info = self.env.step(action)
        self.left -= 1
        return observation, reward, done or self.left == 0, info


class CycleOverBenchmarks(gym.Wrapper):
    def __init__(self, env, benchmarks):
        super().__init__(env)
        self.benchmarks, self.turn = list(benchmarks), -1

    def reset(self):
        self.turn += 1
        return self.env.reset(benchmark=self.benchmarks[self.turn % len(self.benchmarks)])


def make_env():
    return TimeLimit(Compiler(), max_episode_steps=5)


def make_training_env(*args):
    del args
    return CycleOverBenchmarks(make_env(), range(50))


def main():
    tune.register_env("compiler_gym", make_training_env)
    if ray.is_initialized():
        ray.shutdown()
    ray.init(include_dashboard=False, ignore_reinit_error=True, num_cpus=2)
    tune.register_env("compiler_gym", make_training_env)
    analysis = tune.run(
        PPOTrainer,
        checkpoint_at_end=True,
        stop={"episodes_total": 6},
        config={
            "seed": 0xCC, "num_workers": 1, "env": "compiler_gym", "rollout_fragment_length": 5, "train_batch_size": 5,
            "sgd_minibatch_size": 5,
        },
    )
    agent = PPOTrainer(env="compiler_gym", config={"num_workers": 1, "seed": 0xCC, "explore": False})
    checkpoint = analysis.get_best_checkpoint(metric="episode_reward_mean", mode="max", trial=analysis.trials[0])
    agent.restore(checkpoint)
    assert agent.iteration == analysis.trials[0].last_result["training_iteration"] >= 6

    def run_agent_on_benchmarks(benchmarks):
        rewards = []
        with make_env() as env:
            for benchmark in benchmarks:
                observation, done = env.reset(benchmark=benchmark), False
                while not done:
                    action = agent.compute_action(observation)
                    observation, _, done, _ = env.step(action)
                rewards.append(env.episode_reward)
        return rewards

    first = run_agent_on_benchmarks(range(50, 55))
    assert first == run_agent_on_benchmarks(range(50, 55)) and all(reward >= 0 for reward in first)
    ray.shutdown()
    print("ok program_compiler_passes")


if __name__ == "__main__":
    main()
