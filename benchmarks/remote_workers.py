"""DQN with two remote workers that feed one learner against the same in one process, uniform replay.

python benchmarks/remote_workers.py [--rounds 5] [--seconds 5]
"""

import argparse
import time

from common import alternate, report  # isort: skip - sets the number of threads before torch is loaded

import torch

from rlframe.agents.dqn import DQNTrainer

torch.set_num_threads(1)

CONFIG = {
    "train_batch_size": 32,
    "model": {"fcnet_hiddens": [256, 256]},
    "prioritized_replay": False,
    "min_iter_time_s": 0,
    "timesteps_per_iteration": 1000,
    "log_sys_usage": False,
    "seed": 0,
}


def main(rounds: int, seconds: float, fragment: int) -> None:
    trainers = {}
    for workers in (2, 0):
        # The same number of rows per update in both: `fragment` per worker and round, an update per 4 rows.
        rows = fragment * max(workers, 1)
        config = {**CONFIG, "num_workers": workers, "rollout_fragment_length": fragment, "training_intensity": 8.0}
        trainers[workers] = DQNTrainer(config, env="CartPole-v1")
        trainers[workers].train()
        print(f"{workers} workers: {rows} rows a round, {rows * 8 // 32} updates a round")

    def run(workers: int) -> float:
        started, first = time.perf_counter(), trainers[workers].train()["timesteps_total"]
        last = first
        while time.perf_counter() - started < seconds:
            last = trainers[workers].train()["timesteps_total"]
        return (last - first + 1000) / (time.perf_counter() - started)

    sides = {"two remote workers": lambda: run(2), "none: one process": lambda: run(0)}
    report("DQN on CartPole-v1, uniform replay", alternate(sides, rounds), "env steps/s")
    for trainer in trainers.values():
        trainer.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--fragment", type=int, default=128)
    main(**vars(parser.parse_args()))
