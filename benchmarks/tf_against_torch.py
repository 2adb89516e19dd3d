"""The full DQN loop in TensorFlow against the same in PyTorch, one thread.

The settings are those of dqn_against_sb3.py: CartPole-v1, 256x256, batch 32, an update per 4 steps, uniform replay.

python benchmarks/tf_against_torch.py [--steps 4000] [--rounds 5]       (needs: pip install -e '.[tf]')
"""

import argparse
import time

from common import alternate, report  # isort: skip - sets the number of threads before a framework is loaded

import torch
from dqn_against_sb3 import CONFIG

from rlframe.agents.dqn import DQNTrainer

torch.set_num_threads(1)
ONE_THREAD = {"intra_op_parallelism_threads": 1, "inter_op_parallelism_threads": 1}


def main(steps: int, rounds: int) -> None:
    def side(**overrides: object) -> object:
        trainer = DQNTrainer({**CONFIG, "local_tf_session_args": ONE_THREAD, **overrides}, env="CartPole-v1")
        for _ in range(2):
            trainer.train()

        def run() -> float:
            started, before = time.perf_counter(), trainer.iteration
            while (trainer.iteration - before) * 1000 < steps:
                trainer.train()
            return steps / (time.perf_counter() - started)

        return run

    sides = {"TensorFlow": side(framework="tf"), "PyTorch": side(framework="torch")}
    report("DQN on CartPole-v1, 256x256, an update per 4 steps", alternate(sides, rounds), "env steps/s")
    sides = {"TensorFlow, jit_compile": side(framework="tf", jit_compile=True), "TensorFlow": sides["TensorFlow"]}
    report("the learner step compiled by XLA", alternate(sides, rounds), "env steps/s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=5)
    main(**vars(parser.parse_args()))
