"""PQN's env steps per second against DQN's, one thread, the same network, in one run.

CartPole-v1, 128x128. DQN does an update on 32 rows per 4 steps, PQN four passes over 512 rows in minibatches of 64.

python benchmarks/pqn_against_dqn.py [--rounds 5] [--framework torch|tf]
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

from common import alternate, report  # isort: skip - sets the number of threads before torch is loaded

import torch

from rlframe.agents.dqn import DQNTrainer, PQNTrainer
from rlframe.agents.presets import get_preset

torch.set_num_threads(1)

COMMON = {"min_iter_time_s": 0, "log_sys_usage": False, "seed": 0}
DQN = {
    **COMMON,
    "model": {"fcnet_hiddens": [128, 128], "fcnet_activation": "relu"},
    "hiddens": [],
    "dueling": False,
    "timesteps_per_iteration": 1000,
}


def rate_of(trainer: Any, steps: int) -> Callable[[], float]:
    """Returns what trains for so many env steps at least, and returns env steps per second."""
    for _ in range(2):
        trainer.train()

    def measure() -> float:
        started, first = time.perf_counter(), trainer.train()
        before = first["timesteps_total"] - first["timesteps_this_iter"]
        total = first["timesteps_total"]
        while total - before < steps:
            total = trainer.train()["timesteps_total"]
        return (total - before) / (time.perf_counter() - started)

    return measure


def main(rounds: int, framework: str) -> None:
    pqn = PQNTrainer({**get_preset("PQN", "CartPole-v1"), **COMMON, "framework": framework}, env="CartPole-v1")
    dqn = DQNTrainer({**DQN, "framework": framework}, env="CartPole-v1")
    figures = alternate({"PQN": rate_of(pqn, 20_000), "DQN": rate_of(dqn, 4000)}, rounds)
    report(f"PQN and DQN on CartPole-v1, 128x128, {framework}", figures, "env steps/s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--framework", choices=["torch", "tf"], default="torch")
    main(**vars(parser.parse_args()))
