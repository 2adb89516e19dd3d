"""A mining game trained and played back by RLlib's own scripts, which the project wraps to register what it has.

Uses RLlib as juliusfrost/minerl-rllib (rllib_train.py: `create_parser`, `run` of `rllib.train`, experiments in YAML),
and as projects that play back by `rllib.rollout` (`create_parser`, `run`, `rollout`, `RolloutSaver`, `--out` read as a
pickle of steps).
"""

import os
import pickle

import gym
import numpy as np
import ray
from rlframe import tune

from rlframe.agents.registry import get_agent_class
from rlframe.rollout import RolloutSaver, rollout
from rlframe.rollout import create_parser as rollout_parser
from rlframe.rollout import run as run_rollout
from rlframe.train import create_parser, run

EXPERIMENT = """
mining:
    run: PPO
    env: Mine
    stop: {training_iteration: 2}
    checkpoint_at_end: true
    local_dir: RESULTS
    config:
        framework: torch
        num_workers: 0
        lr: 1e-3
        train_batch_size: 100
        sgd_minibatch_size: 50
        num_sgd_iter: 2
        env_config: {depth: 6}
"""


class Mine(gym.Env):
    """Dig (1) or rest (0); each layer is worth its depth."""

    def __init__(self, config):
        self.depth = config.get("depth", 4)
        self.observation_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self):
        self.t = self.at = 0
        return np.array([0.0], np.float32)

    def step(self, action):
        self.t += 1
        self.at += int(action)
        return np.array([self.at / self.depth], np.float32), float(action) * self.at, self.t >= self.depth, {"at": self.at}


def train(folder):
    path = os.path.join(folder, "experiment.yaml")
    with open(path, "w") as file:
        file.write(EXPERIMENT.replace("RESULTS", os.path.join(folder, "results")))
    parser = create_parser()
    parser.add_argument("--kmeans", action="store_true", help="of the wrapper's own")
    args = parser.parse_args(["-f", path, "--ray-num-cpus", "2", "--kmeans"])
    assert args.kmeans
    run(args, parser)
    assert not ray.is_initialized()


def main():
    folder = os.getcwd()
    tune.register_env("Mine", lambda config: Mine(config))
    train(folder)
    [trial] = [entry.path for entry in os.scandir(os.path.join(folder, "results", "mining")) if entry.is_dir()]
    [checkpoint] = [entry.path for entry in os.scandir(trial) if entry.name.startswith("checkpoint_")]

    parser = rollout_parser()
    flags = [checkpoint, "--run", "PPO", "--env", "Mine", "--episodes", "3", "--save-info"]
    run_rollout(parser.parse_args([*flags, "--out", "steps.pkl"]), parser)
    with open("steps.pkl", "rb") as file:
        episodes = pickle.load(file)
    assert [len(episode) for episode in episodes] == [6, 6, 6]
    _, _, _, _, done, info = episodes[0][-1]
    assert done
    assert info["at"] <= 6

    config = {"framework": "torch", "num_workers": 0, "env_config": {"depth": 5}, "explore": False}
    agent = get_agent_class("PPO")(env="Mine", config=config)
    agent.restore(os.path.join(checkpoint, "checkpoint-2"))
    with RolloutSaver("more.pkl") as saver:
        rollout(agent, "Mine", num_steps=12, saver=saver)
    with open("more.pkl", "rb") as file:
        assert [len(episode) for episode in pickle.load(file)] == [5, 5, 2]
    print("ok program_script_wrapper")


if __name__ == "__main__":
    main()
