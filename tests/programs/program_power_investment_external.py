"""Investments of a power market from outside: an ExternalEnv whose loop asks for actions.

Uses RLlib as alexanderkell/reinforcement-learning-investment-ftt-power does (its client and server around FTT:Power):
an `ExternalEnv` subclass that owns the simulation in `run()`, an integer observation array, `register_env` with
a lambda around spaces, and DQN that is trained in a `while True` loop.
"""

import numpy as np
import ray
from gym.spaces import Box, Discrete
from rlframe.agents.dqn import DQNTrainer
from rlframe.env.external_env import ExternalEnv
from ray.tune.registry import register_env


class PowerMarket:
    """Carbon falls with a price of it, the power price rises; the best is in the middle."""

    def reset(self):
        self.year = 0
        return np.array([0.0, 0.0], np.float32)

    def step(self, action):
        self.year += 1
        reward = 4.0 - abs(float(action) - 4.0)
        return np.array([self.year / 10, action / 9], np.float32), reward, self.year >= 10, {}


class ExternalMarket(ExternalEnv):
    def __init__(self, action_space, observation_space):
        super().__init__(action_space, observation_space)

    def run(self):
        while True:
            episode_id = self.start_episode()
            env = PowerMarket()
            observation, done = env.reset(), False
            while not done:
                action = self.get_action(episode_id, observation)
                observation, reward, done, info = env.step(action)
                self.log_returns(episode_id, reward, info=info)
            self.end_episode(episode_id, observation)


def main():
    ray.init(num_cpus=2, log_to_driver=False)
    action_space, observation_space = Discrete(10), Box(low=-2000, high=2000, shape=(2,), dtype=np.float32)
    register_env("my_env", lambda _: ExternalMarket(action_space=action_space, observation_space=observation_space))
    trainer = DQNTrainer(env="my_env", config={
        "framework": "torch", "num_workers": 0, "lr": 5e-3, "gamma": 0.1, "learning_starts": 100, "hiddens": [32],
        "timesteps_per_iteration": 300, "model": {"fcnet_hiddens": [32]}, "target_network_update_freq": 50,
        "exploration_config": {"epsilon_timesteps": 500, "final_epsilon": 0.05}, "min_iter_time_s": 0, "seed": 0,
    })  # fmt: skip
    i = 0
    while True:
        i += 1
        result = trainer.train()
        if i == 3:
            checkpoint = trainer.save("last_checkpoint.out")
            break
    assert result["episode_len_mean"] == 10 and result["episodes_total"] >= 80, result["episodes_total"]
    assert -20 <= result["episode_reward_mean"] <= 40
    trainer.restore(checkpoint)
    action = int(trainer.compute_action(np.array([0.0, 0.0], np.float32), explore=False))
    assert 1 <= action <= 8, action
    trainer.stop()
    ray.shutdown()
    print("ok program_power_investment_external")


if __name__ == "__main__":
    main()
