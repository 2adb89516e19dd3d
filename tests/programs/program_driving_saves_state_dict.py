"""A driving simulator's DQN: a trainer that saves its network's state_dict beside each checkpoint, under `tune.run`.

Uses RLlib as carla-simulator/rllib-integration does (dqn_train.py, dqn_example/dqn_callbacks.py): `save_checkpoint` is
overridden and returns what its parent returned, callbacks take their arguments by position and look into the worker's
environment, `restore=False` on the first run, and a YAML file holds the config.
"""

import glob
import os
import tempfile

import gym
import numpy as np
import ray
import torch
import yaml
from ray import tune

from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.agents.dqn import DQNTrainer


class Heading:
    """The experiment that the environment is asked about."""

    def __init__(self):
        self.last_heading_deviation = 0.0


class Road(gym.Env):
    """Keep a car on a straight road: steer left, right or not at all."""

    def __init__(self, env_config):
        self.experiment = env_config["experiment"]["type"]()
        self.limit = env_config["experiment"]["limit"]
        self.observation_space = gym.spaces.Box(-3.0, 3.0, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(3)

    def reset(self):
        self.x, self.heading, self.t = 0.0, 0.3, 0
        return self.observe()

    def observe(self):
        return np.array([np.clip(self.x, -3, 3), np.clip(self.heading, -3, 3)], np.float32)

    def step(self, action):
        self.heading += 0.1 * (int(action) - 1)
        self.x += self.heading
        self.t += 1
        self.experiment.last_heading_deviation = abs(self.heading)
        return self.observe(), 1.0 - abs(self.x) / 3, abs(self.x) > 3 or self.t >= self.limit, {}


class DrivingCallbacks(DefaultCallbacks):
    def on_episode_start(self, worker, base_env, policies, episode, **kwargs):
        episode.user_data["heading_deviation"] = []

    def on_episode_step(self, worker, base_env, episode, **kwargs):
        deviation = worker.env.experiment.last_heading_deviation
        if deviation > 0:
            episode.user_data["heading_deviation"].append(deviation)

    def on_episode_end(self, worker, base_env, policies, episode, **kwargs):
        deviations = episode.user_data["heading_deviation"]
        episode.custom_metrics["heading_deviation"] = np.mean(deviations) if len(deviations) > 0 else 0


class SavingTrainer(DQNTrainer):
    def save_checkpoint(self, checkpoint_dir):
        path = super().save_checkpoint(checkpoint_dir)
        torch.save(self.get_policy().model.state_dict(), os.path.join(checkpoint_dir, "state_dict.pth"))
        return path


CONFIG = """
framework: torch
num_workers: 1
num_gpus: 0
timesteps_per_iteration: 100
min_iter_time_s: 0
learning_starts: 50
rollout_fragment_length: 10
train_batch_size: 16
target_network_update_freq: 100
buffer_size: 1000
dueling: True
double_q: True
exploration_config: {type: EpsilonGreedy, initial_epsilon: 1.0, final_epsilon: 0.05, epsilon_timesteps: 500}
model: {fcnet_hiddens: [16]}
env_config: {experiment: {limit: 30}}
"""


def main():
    config = yaml.safe_load(CONFIG)
    config["env"] = Road
    config["env_config"]["experiment"]["type"] = Heading
    config["callbacks"] = DrivingCallbacks
    with tempfile.TemporaryDirectory() as folder:
        ray.init(num_cpus=2, include_dashboard=False)
        analysis = tune.run(
            SavingTrainer,
            name="driving",
            storage_path=folder,  # local_dir, as Ray calls it today
            stop={"training_iteration": 2},
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1, checkpoint_at_end=True),
            config=config,
            verbose=0,
        )
        result = next(iter(analysis.results.values()))
        assert result["custom_metrics"]["heading_deviation_mean"] > 0, result["custom_metrics"]
        saved = glob.glob(os.path.join(folder, "driving", "*", "checkpoint_*", "state_dict.pth"))
        assert len(saved) == 2, saved
        ray.shutdown()
        config["num_workers"] = 0
        trainer = SavingTrainer(config=config, env=Road)
        names = set(trainer.get_policy().model.state_dict())
        assert set(torch.load(saved[0], weights_only=True)) == names, names
        trainer.get_policy().model.load_state_dict(torch.load(saved[-1], weights_only=True))
        assert int(trainer.compute_action(np.zeros(2, np.float32), explore=False)) in (0, 1, 2)
        trainer.stop()
    print("ok program_driving_saves_state_dict")


if __name__ == "__main__":
    main()
