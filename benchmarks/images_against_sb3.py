"""DQN and PPO on 84x84x4 images against Stable-Baselines3's, with the same network and settings, one thread.

Networks: "mnih" is that of Mnih et al. 2015, convolutions 32x8/4, 64x4/2, 64x3/1 without padding, 512 dense units;
"default" is this package's (and RLlib's) for such images, 16x8/4, 32x4/2, 256x11/1, all but the last padded. An
environment that gives one of some random images at no cost stands for a game. DQN: batch 32, one update per 4 steps,
uniform replay. PPO: 8 environments x 128 steps, minibatches of 256, 4 passes, values and policy share the network.

python benchmarks/images_against_sb3.py [--algorithms DQN PPO] [--networks mnih default] [--steps 2048] [--rounds 5]
    [--gpu]
(needs: pip install stable-baselines3)
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

from common import alternate, report  # isort: skip - sets the number of threads before torch is loaded

import importlib.util
import itertools

import gymnasium as gym
import numpy as np
import torch

from rlframe.agents.dqn import DQNTrainer
from rlframe.agents.ppo import PPOTrainer

torch.set_num_threads(1)

NETWORKS = {
    "mnih": {
        "conv_filters": [[32, 8, 4, "valid"], [64, 4, 2, "valid"], [64, 3, 1, "valid"]],
        "post_fcnet_hiddens": [512],
        "vf_share_layers": True,
    },
    "default": {"vf_share_layers": True},
}
COMMON = {
    "num_workers": 0,
    "min_iter_time_s": 0,
    "log_sys_usage": False,
    "seed": 0,
    "local_tf_session_args": {"intra_op_parallelism_threads": 1},
}
DQN_CONFIG = {
    **COMMON,
    "train_batch_size": 32,
    "rollout_fragment_length": 4,
    "hiddens": [],
    "dueling": False,
    "double_q": False,
    "prioritized_replay": False,
    "lr": 1e-4,
    "grad_clip": 10.0,
    "learning_starts": 500,
    "target_network_update_freq": 1000,
    "replay_buffer_config": {"capacity": 5000},
    "timesteps_per_iteration": 512,
}
PPO_CONFIG = {
    **COMMON,
    "num_envs_per_worker": 8,
    "rollout_fragment_length": 128,
    "train_batch_size": 1024,
    "sgd_minibatch_size": 256,
    "num_sgd_iter": 4,
    "lr": 2.5e-4,
    "lambda": 0.95,
    "clip_param": 0.1,
    "kl_coeff": 0.0,
    "vf_loss_coeff": 0.5,
    "vf_clip_param": 1e6,
    "grad_clip": 0.5,
}


class Images(gym.Env[Any, Any]):
    """Gives one of 16 random images at each step, in episodes of 500."""

    def __init__(self, config: Any = None) -> None:
        self.observation_space = gym.spaces.Box(0, 255, (84, 84, 4), np.uint8)
        self.action_space = gym.spaces.Discrete(6)
        self.images = np.random.default_rng(0).integers(0, 256, (16, 84, 84, 4), np.uint8)
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.images[0], {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.images[self.steps % 16], float(action == self.steps % 6), self.steps >= 500, False, {}


def sb3_network(network: str) -> dict[str, Any]:
    """Returns the `policy_kwargs` of Stable-Baselines3 for one of the networks."""
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

    class Default(BaseFeaturesExtractor):
        def __init__(self, observation_space: Any) -> None:
            super().__init__(observation_space, 256)
            relu, pad, conv = torch.nn.ReLU, torch.nn.ZeroPad2d, torch.nn.Conv2d
            first, second = (pad(2), conv(4, 16, 8, 4), relu()), (pad((1, 2, 1, 2)), conv(16, 32, 4, 2), relu())
            self.layers = torch.nn.Sequential(*first, *second, conv(32, 256, 11), relu(), torch.nn.Flatten())

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            features: torch.Tensor = self.layers(images)
            return features

    return {"net_arch": []} if network == "mnih" else {"net_arch": [], "features_extractor_class": Default}


def sb3_dqn(network: str, device: str) -> Any:
    from stable_baselines3 import DQN

    return DQN(
        "CnnPolicy",
        Images(),
        policy_kwargs=sb3_network(network),
        batch_size=32,
        train_freq=4,
        gradient_steps=1,
        learning_starts=500,
        buffer_size=5000,
        target_update_interval=1000,
        learning_rate=1e-4,
        max_grad_norm=10,
        device=device,
        seed=0,
    )


def sb3_ppo(network: str, device: str) -> Any:
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    return PPO(
        "CnnPolicy",
        make_vec_env(Images, 8, seed=0),
        policy_kwargs=sb3_network(network),
        n_steps=128,
        batch_size=256,
        n_epochs=4,
        learning_rate=2.5e-4,
        clip_range=0.1,
        device=device,
        seed=0,
    )


def ours(trainer: Any, steps: int) -> Callable[[], float]:
    """Returns a function that trains for `steps` steps, and returns env steps/s."""
    for _ in range(2):
        total = trainer.train()["timesteps_total"]

    def run() -> float:
        nonlocal total
        started, before = time.perf_counter(), total
        while total - before < steps:
            total = trainer.train()["timesteps_total"]
        return (total - before) / (time.perf_counter() - started)

    return run


def theirs(model: Any, steps: int) -> Callable[[], float]:
    """Returns what `ours` does, of Stable-Baselines3."""
    model.learn(1024)

    def run() -> float:
        started = time.perf_counter()
        model.learn(steps, reset_num_timesteps=False)
        return steps / (time.perf_counter() - started)

    return run


def main(algorithms: list[str], networks: list[str], frameworks: list[str], steps: int, rounds: int, gpu: bool) -> None:
    parts = {"DQN": (DQNTrainer, DQN_CONFIG, sb3_dqn), "PPO": (PPOTrainer, PPO_CONFIG, sb3_ppo)}
    for name, network in itertools.product(algorithms, networks):
        trainer, config, model = parts[name]
        made = {
            framework: trainer(
                {**config, "model": NETWORKS[network], "framework": framework, "num_gpus": int(gpu)}, env=Images
            )
            for framework in frameworks
        }
        sides = {f"rlframe {name}, {framework}": ours(one, steps) for framework, one in made.items()}
        rival = f"Stable-Baselines3 {name}"
        figures = alternate({**sides, rival: theirs(model(network, "cuda" if gpu else "cpu"), steps)}, rounds)
        for side in sides:
            pair = {key: figures[key] for key in (side, rival)}
            report(f"{name} on 84x84x4 images, {network} network", pair, "env steps/s")
        for one in made.values():
            one.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--algorithms", nargs="+", default=["DQN", "PPO"])
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS))
    found = ["torch", "tf"] if importlib.util.find_spec("tensorflow") else ["torch"]
    parser.add_argument("--frameworks", nargs="+", default=found)
    parser.add_argument("--steps", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gpu", action="store_true", help="learn on a GPU, both sides")
    main(**vars(parser.parse_args()))
