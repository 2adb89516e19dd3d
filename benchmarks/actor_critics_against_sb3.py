"""SAC, TD3 and DDPG end to end against Stable-Baselines3's with the same settings, one thread.

Pendulum-v1, batches of 256, one update per step, learning rates 1e-3. SAC has networks of 256x256 and adapts its
entropy, TD3 and DDPG have 400x300 and Gaussian noise. CPU seconds are those of this thread.

python benchmarks/actor_critics_against_sb3.py [SAC TD3 DDPG] [--framework torch tf] [--steps 500] [--rounds 5]
    [--cpu] [--gpu]
(needs: pip install stable-baselines3)
"""

import argparse
import time

from common import alternate, report  # isort: skip - sets the number of threads before torch is loaded

import importlib.util
from collections.abc import Callable, Sequence

import numpy as np
import torch

from rlframe.agents.registry import get_trainer_class

torch.set_num_threads(1)

LR, START = 1e-3, 500
CONFIG = {
    "num_workers": 0,
    "rollout_fragment_length": 1,
    "train_batch_size": 256,
    "learning_starts": START,
    "replay_buffer_config": {"capacity": 100_000},
    "prioritized_replay": False,
    "min_iter_time_s": 0,
    "log_sys_usage": False,
    "seed": 0,
    "local_tf_session_args": {"intra_op_parallelism_threads": 1},
}
NOISE = {"type": "GaussianNoise", "random_timesteps": START, "stddev": 0.1, "initial_scale": 1.0, "final_scale": 1.0}
DETERMINISTIC = {"actor_lr": LR, "critic_lr": LR, "tau": 0.005, "l2_reg": 0.0, "exploration_config": NOISE}
OURS = {
    "SAC": {
        "optimization": {"actor_learning_rate": LR, "critic_learning_rate": LR, "entropy_learning_rate": LR},
    },
    "TD3": DETERMINISTIC,
    "DDPG": DETERMINISTIC,
}


def theirs(name: str, steps: int, clock: Callable[[], float], gpu: bool) -> Callable[[], float]:
    """Returns a function that trains Stable-Baselines3's and returns its env steps per second."""
    import stable_baselines3
    from stable_baselines3.common.noise import NormalActionNoise

    noise = {} if name == "SAC" else {"action_noise": NormalActionNoise(np.zeros(1), 0.1 * np.ones(1))}
    model = getattr(stable_baselines3, name)(
        "MlpPolicy", "Pendulum-v1", learning_rate=LR, buffer_size=100_000, learning_starts=START, batch_size=256,
        train_freq=1, gradient_steps=1, device="cuda" if gpu else "cpu", seed=0, **noise,
    )  # fmt: skip
    model.learn(2 * START)

    def run() -> float:
        started = clock()
        model.learn(steps, reset_num_timesteps=False)
        return steps / (clock() - started)

    return run


def ours(name: str, framework: str, steps: int, clock: Callable[[], float], gpu: bool) -> Callable[[], float]:
    """Returns a function that trains ours and returns its env steps per second."""
    config = {**CONFIG, **OURS[name], "framework": framework, "timesteps_per_iteration": steps, "num_gpus": int(gpu)}
    trainer = get_trainer_class(name)(config, env="Pendulum-v1")
    while trainer.train()["timesteps_total"] < 2 * START:
        pass

    def run() -> float:
        started = clock()
        trainer.train()
        return steps / (clock() - started)

    return run


def main(algorithms: Sequence[str], frameworks: Sequence[str], steps: int, rounds: int, cpu: bool, gpu: bool) -> None:
    clock = time.thread_time if cpu else time.perf_counter
    known = [name for name in frameworks if name == "torch" or importlib.util.find_spec("tensorflow")]
    for name in algorithms:
        sides = {f"rlframe {name}, {framework}": ours(name, framework, steps, clock, gpu) for framework in known}
        peer = f"Stable-Baselines3 {name}"
        figures = alternate({**sides, peer: theirs(name, steps, clock, gpu)}, rounds)
        unit = "env steps/s of CPU" if cpu else "env steps/s"
        for side in sides:
            pair = {key: figures[key] for key in (side, peer)}
            report(f"{name} on Pendulum-v1, batches of 256, an update per step", pair, unit)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("algorithms", nargs="*", default=list(OURS), choices=[*OURS, [*OURS]])
    parser.add_argument("--framework", dest="frameworks", nargs="+", default=["torch", "tf"], choices=["torch", "tf"])
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu", action="store_true", help="CPU seconds instead of the clock's, on a busy machine")
    parser.add_argument("--gpu", action="store_true", help="learn on a GPU, both sides")
    main(**vars(parser.parse_args()))
