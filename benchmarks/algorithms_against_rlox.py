"""PPO, A2C, DQN, SAC and TD3 end to end against rlox's with the same sizes, in one process, PyTorch in one thread.

CartPole-v1 for PPO (8 x 128 steps, batches of 256, 4 passes, 64x64), A2C (8 x 5 steps, 64x64) and DQN (batches of 32,
an update per 4 steps, 256x256); Pendulum-v1 for SAC and TD3 (batches of 256, an update per step, 256x256). rlox steps
CartPole in Rust for PPO and A2C; ours is Gymnasium's. CPU seconds are those of all threads of the process.

python benchmarks/algorithms_against_rlox.py [PPO A2C DQN SAC TD3] [--rounds 5] [--scale 1.0] [--cpu]
(needs: pip install rlox)
"""

import argparse
import time

from common import alternate, report  # isort: skip - sets the number of threads before torch is loaded

from collections.abc import Callable, Sequence
from typing import Any

import torch
from dqn_against_sb3 import CONFIG as DQN
from ppo_against_sb3 import CONFIG as PPO

from rlframe.agents.registry import get_trainer_class

torch.set_num_threads(1)

START = 500
REPLAYED = {
    "rollout_fragment_length": 1, "train_batch_size": 256, "learning_starts": START, "prioritized_replay": False,
    "replay_buffer_config": {"capacity": 100_000}, "min_iter_time_s": 0, "log_sys_usage": False, "seed": 0,
}  # fmt: skip
NOISE = {"type": "GaussianNoise", "random_timesteps": START, "stddev": 0.1, "initial_scale": 1.0, "final_scale": 1.0}
OURS: dict[str, dict[str, Any]] = {
    "PPO": PPO,
    "A2C": {
        "num_workers": 0, "num_envs_per_worker": 8, "rollout_fragment_length": 5, "train_batch_size": 40, "lr": 7e-4,
        "model": {"fcnet_hiddens": [64, 64]}, "min_iter_time_s": 0, "log_sys_usage": False, "seed": 0,
    },
    "DQN": {**DQN, "learning_starts": START},
    "SAC": REPLAYED,
    "TD3": {
        **REPLAYED, "actor_hiddens": [256, 256], "critic_hiddens": [256, 256], "exploration_config": NOISE,
    },
}  # fmt: skip
THEIRS: dict[str, dict[str, Any]] = {
    "PPO": {"n_envs": 8, "n_steps": 128, "batch_size": 256, "n_epochs": 4, "learning_rate": 3e-4},
    "A2C": {"n_envs": 8, "n_steps": 5, "learning_rate": 7e-4},
    "DQN": {
        "buffer_size": 50_000, "batch_size": 32, "train_freq": 4, "learning_starts": START, "target_update_freq": 500,
        "double_dqn": False, "hidden": 256,
    },
    "SAC": {"buffer_size": 100_000, "learning_starts": START, "hidden": 256},
    "TD3": {"buffer_size": 100_000, "learning_starts": START, "hidden": 256},
}  # fmt: skip
#: Env steps of a round.
STEPS = {"PPO": 8192, "A2C": 4000, "DQN": 4000, "SAC": 500, "TD3": 500}


def env_of(name: str) -> str:
    return "Pendulum-v1" if name in ("SAC", "TD3") else "CartPole-v1"


def ours(name: str, steps: int, clock: Callable[[], float]) -> Callable[[], float]:
    """Returns a function that trains ours and returns its env steps per second."""
    trainer = get_trainer_class(name)({**OURS[name], "timesteps_per_iteration": steps}, env=env_of(name))
    while trainer.train()["timesteps_total"] < 2 * START:
        pass

    def run() -> float:
        started, before = clock(), trainer.train()["timesteps_this_iter"]
        return before / (clock() - started)

    return run


def theirs(name: str, steps: int, clock: Callable[[], float]) -> Callable[[], float]:
    """Returns a function that trains rlox's and returns its env steps per second."""
    import rlox.algorithms

    made = getattr(rlox.algorithms, name)(env_of(name), seed=0, **THEIRS[name])
    made.train(total_timesteps=2 * START)
    if name in ("DQN", "SAC", "TD3"):
        made.learning_starts = 0  # each call counts its steps from 0
    if name == "DQN":
        made.exploration_initial_eps = made.exploration_final_eps

    def run() -> float:
        started = clock()
        made.train(total_timesteps=steps)
        return steps / (clock() - started)

    return run


def main(algorithms: Sequence[str], rounds: int, scale: float, cpu: bool) -> None:
    clock = time.process_time if cpu else time.perf_counter
    for name in algorithms:
        steps = max(int(STEPS[name] * scale), 1)
        sides = {f"rlframe {name}": ours(name, steps, clock), f"rlox {name}": theirs(name, steps, clock)}
        unit = "env steps/s of CPU" if cpu else "env steps/s"
        report(f"{name} on {env_of(name)}", alternate(sides, rounds), unit)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("algorithms", nargs="*", default=list(OURS), choices=[*OURS, [*OURS]])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="of the env steps of a round")
    parser.add_argument("--cpu", action="store_true", help="CPU seconds instead of the clock's, on a busy machine")
    main(**vars(parser.parse_args()))
