"""Ape-X end to end: env steps per second with one and two workers, beside DQN in one process, with the learner on.

CartPole-v1, 256x256, fragments of 50, batches of 512 from two shards, no `training_intensity`: workers sample and the
learner learns as fast as each can. DQN has RLlib's defaults: an update of 32 rows per 4 steps. One thread for each
process; each side runs alone. `--learner off` never lets learning start, and tells what sampling and storing cost.

python benchmarks/apex_throughput.py [--seconds 10] [--rounds 5] [--learner on|off]

Ray lets its processes run after everybody else; with RAY_worker_niceness=0 in the environment they compete with the
learner.
"""

import argparse
import time
from typing import Any

from common import alternate, report  # isort: skip - sets the number of threads before torch is loaded

import torch

from rlframe.agents.dqn import ApexTrainer, DQNTrainer

torch.set_num_threads(1)

NETWORKS = {"model": {"fcnet_hiddens": [256, 256]}, "hiddens": [256], "seed": 0, "log_sys_usage": False}
APEX = {
    **NETWORKS,
    "num_cpus_per_worker": 0.5,
    "learning_starts": 1000,
    "timesteps_per_iteration": 1000,
    "min_iter_time_s": 1,
    "optimizer": {"num_replay_buffer_shards": 2},
    "replay_buffer_config": {"capacity": 100_000},
    "target_network_update_freq": 50_000,
}
NEVER = 10**9


def measure(trainer: Any, seconds: float) -> tuple[float, float]:
    """Returns env steps per second, all of them stored, and the learner's share of waiting for batches."""
    before, started = trainer.train(), time.perf_counter()
    busy, waited = _learner_seconds(trainer)
    while time.perf_counter() - started < seconds:
        after = trainer.train()
    steps = after["timesteps_total"] - before["timesteps_total"]
    elapsed = time.perf_counter() - started
    busy, waited = (now - then for now, then in zip(_learner_seconds(trainer), (busy, waited), strict=True))
    trainer.stop()
    return steps / elapsed, waited / max(busy + waited, 1e-9)


def _learner_seconds(trainer: Any) -> tuple[float, float]:
    timers = trainer.train_exec_impl.shared_metrics.get().timers
    if "learner_grad" not in timers:
        return 0.0, 0.0
    return timers["learner_grad"].total, timers["learner_dequeue"].total


def main(seconds: float, rounds: int, learner: str) -> None:
    waits: dict[int, list[float]] = {1: [], 2: []}

    def apex(workers: int) -> float:
        # Workers sample ahead for as long as they live, so each round has its own: no other side runs beside them.
        starts = {"learning_starts": NEVER} if learner == "off" else {}
        trainer = ApexTrainer({**APEX, **starts, "num_workers": workers}, env="CartPole-v1")
        while learner == "on" and not trainer.train()["info"]["learner"]:
            pass
        rate, waiting = measure(trainer, seconds)
        waits[workers].append(waiting)
        return rate

    def dqn() -> float:
        config = {**NETWORKS, "num_workers": 0, "timesteps_per_iteration": 1000, "min_iter_time_s": 0}
        return measure(DQNTrainer(config, env="CartPole-v1"), seconds)[0]

    figures = alternate(
        {"two workers": lambda: apex(2), "one worker": lambda: apex(1), "DQN, one process": dqn}, rounds
    )
    for other in ("one worker", "DQN, one process"):
        both = {name: figures[name] for name in ("two workers", other)}
        report(f"Ape-X on CartPole-v1, learner {learner}", both, "env steps/s")
    for workers, shares in waits.items():
        print(
            f"  share of the learner's time spent waiting, {workers} worker(s): {sorted(shares)[len(shares) // 2]:.1%}"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--learner", choices=("on", "off"), default="on")
    main(**vars(parser.parse_args()))
