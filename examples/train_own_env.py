"""Train DQN on an environment of your own, new-style or old-style, and use the result.

python examples/train_own_env.py --iterations 20
"""

import argparse

import gymnasium as gym
import numpy as np

from rlframe.agents import dqn


class Corridor(gym.Env):
    """Walk right to the end; every step costs 0.1, the end pays 1."""

    def __init__(self, config):
        self.end = config.get("length", 5)
        self.observation_space = gym.spaces.Box(0.0, self.end, (1,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return np.array([self.place], np.float32), {}

    def step(self, action):
        self.place = max(0, self.place + (1 if action == 1 else -1))
        reached = self.place >= self.end
        return np.array([self.place], np.float32), 1.0 if reached else -0.1, reached, False, {}


class OldCorridor(Corridor):
    """The same with the interface of gym 0.21: `reset() -> obs`, `step() -> (obs, reward, done, info)`."""

    def reset(self):
        return super().reset()[0]

    def step(self, action):
        obs, reward, terminated, _, info = super().step(action)
        return obs, reward, terminated, info


def main(iterations: int = 20, old: bool = False) -> float:
    config = {
        "framework": "torch",
        "num_workers": 0,
        "seed": 0,
        "env_config": {"length": 5},
        "horizon": 100,
        "exploration_config": {"epsilon_timesteps": 3000},
    }
    agent = dqn.DQNTrainer(config, env=OldCorridor if old else Corridor)
    for _ in range(iterations):
        result = agent.train()
    print(f"mean return after {result['timesteps_total']} steps: {result['episode_reward_mean']:.2f}")
    print("action at the start:", agent.compute_action(np.array([0.0], np.float32), explore=False))
    agent.stop()
    return float(result["episode_reward_mean"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--old", action="store_true", help="use the old-style environment")
    arguments = parser.parse_args()
    main(arguments.iterations, arguments.old)
