"""DQN with two remote workers that feed one learner against the same in one process, uniform replay.

The settings are those of dqn_against_sb3.py: 256x256, batch 32, an update per 4 steps.

python benchmarks/remote_workers.py [--rounds 5] [--seconds 5] [--fragment 128]
"""

import argparse
import time

from common import alternate, report  # isort: skip - sets the number of threads before torch is loaded

import torch
from dqn_against_sb3 import CONFIG

from rlframe.agents.dqn import DQNTrainer

torch.set_num_threads(1)


def main(rounds: int, seconds: float, fragment: int) -> None:
    def make(workers: int, rows: int) -> DQNTrainer:
        # training_intensity 8: 32 rows trained for 4 sampled, whatever the length of a fragment.
        config = {**CONFIG, "num_workers": workers, "rollout_fragment_length": rows, "training_intensity": 8.0}
        config["sample_async"] = workers > 0  # the workers sample while the learner learns
        trainer = DQNTrainer(config, env="CartPole-v1")
        trainer.train()
        return trainer

    trainers = {
        f"two remote workers, fragments of {fragment}": make(2, fragment),
        f"none: one process, fragments of {fragment}": make(0, fragment),
        "none: one process, fragments of 4": make(0, 4),
    }

    def run(trainer: DQNTrainer) -> float:
        started, first = time.perf_counter(), trainer.train()["timesteps_total"]
        last = first
        while time.perf_counter() - started < seconds:
            last = trainer.train()["timesteps_total"]
        return (last - first + 1000) / (time.perf_counter() - started)

    figures = alternate({name: lambda t=trainer: run(t) for name, trainer in trainers.items()}, rounds)
    names = list(figures)
    for other in names[1:]:
        report("DQN on CartPole-v1, uniform replay", {name: figures[name] for name in (names[0], other)}, "env steps/s")
    for trainer in trainers.values():
        trainer.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--fragment", type=int, default=128)
    main(**vars(parser.parse_args()))
