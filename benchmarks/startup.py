"""Seconds from process start: `import rlframe`, and the first result of DQN on CartPole.

python benchmarks/startup.py [--rounds 5]
"""

import argparse
import statistics
import subprocess
import sys
import time

PROGRAMS = {
    "python alone": "pass",
    "import rlframe": "import rlframe",
    "first train() of DQN on CartPole": (
        "from rlframe.agents.dqn import DQNTrainer; "
        "DQNTrainer({'min_iter_time_s': 0, 'num_workers': 0}, env='CartPole-v1').train()"
    ),
}


def main(rounds: int) -> None:
    for name, program in PROGRAMS.items():
        times = []
        for _ in range(rounds + 1):
            started = time.perf_counter()
            subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, capture_output=True)
            times.append(time.perf_counter() - started)
        kept = times[1:]
        print(f"{name:<36} median {statistics.median(kept):6.2f} s  (min {min(kept):.2f}, max {max(kept):.2f})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    main(**vars(parser.parse_args()))
