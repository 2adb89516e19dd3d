"""SAC end to end against Stable-Baselines3's with the same settings, one thread.

Pendulum-v1, 256x256 networks, batches of 256, one update per step, learning rates 1e-3, automatic entropy.

python benchmarks/sac_against_sb3.py [--steps 500] [--rounds 5]       (needs: pip install stable-baselines3)
"""

import argparse
import time

from common import alternate, report  # isort: skip - sets the number of threads before torch is loaded

import importlib.util

import torch

from rlframe.agents.sac import SACTrainer

torch.set_num_threads(1)

CONFIG = {
    "num_workers": 0,
    "rollout_fragment_length": 1,
    "train_batch_size": 256,
    "learning_starts": 500,
    "replay_buffer_config": {"capacity": 100_000},
    "optimization": {"actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3, "entropy_learning_rate": 1e-3},
    "min_iter_time_s": 0,
    "log_sys_usage": False,
    "seed": 0,
    "local_tf_session_args": {"intra_op_parallelism_threads": 1},
}


def main(steps: int, rounds: int) -> None:
    from stable_baselines3 import SAC

    model = SAC(
        "MlpPolicy", "Pendulum-v1", learning_rate=1e-3, buffer_size=100_000, learning_starts=500, batch_size=256,
        device="cpu", seed=0,
    )  # fmt: skip
    model.learn(1000)

    def side(framework: str) -> object:
        trainer = SACTrainer({**CONFIG, "framework": framework, "timesteps_per_iteration": steps}, env="Pendulum-v1")
        while trainer.train()["timesteps_total"] < 1000:
            pass

        def run() -> float:
            started = time.perf_counter()
            trainer.train()
            return steps / (time.perf_counter() - started)

        return run

    def theirs() -> float:
        started = time.perf_counter()
        model.learn(steps, reset_num_timesteps=False)
        return steps / (time.perf_counter() - started)

    frameworks = ["torch", "tf"] if importlib.util.find_spec("tensorflow") else ["torch"]
    sides = {f"rlframe SAC, {framework}": side(framework) for framework in frameworks}
    figures = alternate({**sides, "Stable-Baselines3 SAC": theirs}, rounds)
    for name in sides:
        pair = {key: figures[key] for key in (name, "Stable-Baselines3 SAC")}
        report("SAC on Pendulum-v1, 256x256, batches of 256, an update per step", pair, "env steps/s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    main(**vars(parser.parse_args()))
