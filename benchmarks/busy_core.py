"""Training beside a busy core: the threads that rlframe chooses against one thread, for every algorithm.

python benchmarks/busy_core.py [--algorithms DQN PPO ...] [--framework torch] [--rounds 3] [--seconds 8] [--idle]

One process keeps one core busy. Trained and sampled steps per second, default networks, `num_workers: 0`, in processes
of their own; the sides take turns. With `--idle` nothing keeps a core busy, and the sides are what rlframe chooses and
all CPUs with threads that wait as OpenMP has it, on networks that are worth several threads.
"""

import argparse
import json
import os
import subprocess
import sys

from common import alternate, report

ALGORITHMS = ("DQN", "SimpleQ", "PG", "A2C", "PPO", "APPO", "IMPALA")
LARGE = {
    "PPO, 1024x1024, minibatches of 512": (
        "PPO",
        "CartPole-v1",
        {"model": {"fcnet_hiddens": [1024, 1024]}, "sgd_minibatch_size": 512, "num_sgd_iter": 4},
    ),
    "DQN, 84x84x4 images, batches of 32": ("DQN", "ALE/Breakout-v5", {"learning_starts": 200}),
}
PROGRAM = """
import sys, time, json
import rlframe
from rlframe.agents.registry import get_trainer_class
name, env, config, seconds = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), float(sys.argv[4])
trainer = get_trainer_class(name)(config, env=env)
began = trainer.train()["timesteps_total"]
started = time.perf_counter()
while time.perf_counter() - started < seconds:
    result = trainer.train()
print((result["timesteps_total"] - began) / (time.perf_counter() - started))
"""
SAID = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "GOMP_SPINCOUNT", "OPENBLAS_NUM_THREADS")


def steps_per_s(name: str, env: str, config: dict, seconds: float, environ: dict[str, str]) -> float:
    base = {"num_workers": 0, "seed": 0, "log_sys_usage": False, "min_iter_time_s": 0, "timesteps_per_iteration": 200}
    environment = {key: value for key, value in os.environ.items() if key not in SAID}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, name, env, json.dumps({**base, **config}), str(seconds)],
        env={**environment, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return float(done.stdout.split()[-1])


def compare(title: str, name: str, env: str, one: dict, other: dict[str, dict], rounds: int, seconds: float) -> None:
    """Prints what rlframe chooses against `other`: the name of the other side, its config and its environment."""
    ((label, said),) = other.items()
    sides = {
        "as rlframe chooses": lambda: steps_per_s(name, env, one, seconds, {}),
        label: lambda: steps_per_s(name, env, {**one, **said["config"]}, seconds, said["environ"]),
    }
    report(title, alternate(sides, rounds), "env steps/s")


def beside_a_busy_core(algorithms: list[str], framework: str, rounds: int, seconds: float) -> None:
    one_thread = {"one thread": {"config": {}, "environ": {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}}}
    burner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        for name in algorithms:
            title = f"{name}, {framework}, CartPole-v1, beside a busy core"
            compare(title, name, "CartPole-v1", {"framework": framework}, one_thread, rounds, seconds)
    finally:
        burner.kill()


def on_an_idle_machine(rounds: int, seconds: float) -> None:
    cpus = len(os.sched_getaffinity(0))
    said = {"config": {"learner_threads": cpus}, "environ": {"GOMP_SPINCOUNT": "300000"}}
    for title, (name, env, config) in LARGE.items():
        compare(title, name, env, config, {f"{cpus} threads that spin as OpenMP has it": said}, rounds, seconds)


def main(algorithms: list[str], framework: str, rounds: int, seconds: float, idle: bool) -> None:
    if idle:
        on_an_idle_machine(rounds, seconds)
    else:
        beside_a_busy_core(algorithms, framework, rounds, seconds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--algorithms", nargs="+", default=list(ALGORITHMS))
    parser.add_argument("--framework", default="torch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--idle", action="store_true")
    main(**vars(parser.parse_args()))
