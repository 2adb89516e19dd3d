"""IMPALA's sampling and learning end to end, beside Stable-Baselines3's PPO in the same run.

CartPole-v1, 2 remote workers x 8 slots, fragments of 64, train batches of 512, 64x64 tanh. Stable-Baselines3: 8
environments x 128 steps, minibatches of 256, 4 passes. One thread for each process.

python benchmarks/impala_throughput.py [--seconds 10] [--rounds 5]       (needs: pip install stable-baselines3)
"""

import argparse
import time

from common import alternate, report  # isort: skip - sets the number of threads before torch is loaded

import importlib.util

import torch

from rlframe.agents.impala import ImpalaTrainer

torch.set_num_threads(1)

CONFIG = {
    "num_workers": 2,
    "num_envs_per_worker": 8,
    "rollout_fragment_length": 64,
    "train_batch_size": 512,
    "model": {"fcnet_hiddens": [64, 64]},
    "min_iter_time_s": 1,
    "num_cpus_per_worker": 0.5,
    "log_sys_usage": False,
    "seed": 0,
    "local_tf_session_args": {"intra_op_parallelism_threads": 1},
}


def main(seconds: float, rounds: int) -> None:
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    model = PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", 8, seed=0),
        n_steps=128,
        batch_size=256,
        n_epochs=4,
        learning_rate=3e-4,
        device="cpu",
        seed=0,
    )
    model.learn(2048)

    def impala(framework: str) -> object:
        def run() -> float:
            # Workers sample ahead for as long as they live, so each round has its own: no other side runs beside them.
            trainer = ImpalaTrainer({**CONFIG, "framework": framework}, env="CartPole-v1")
            first = trainer.train()["info"]["num_steps_trained"]
            started = time.perf_counter()
            while time.perf_counter() - started < seconds:
                last = trainer.train()["info"]["num_steps_trained"]
            elapsed = time.perf_counter() - started
            trainer.stop()
            return float((last - first) / elapsed)

        return run

    def theirs() -> float:
        steps, started = 20480, time.perf_counter()
        model.learn(steps, reset_num_timesteps=False)
        return steps / (time.perf_counter() - started)

    frameworks = ["torch", "tf"] if importlib.util.find_spec("tensorflow") else ["torch"]
    sides = {f"rlframe IMPALA, {framework}": impala(framework) for framework in frameworks}
    figures = alternate({**sides, "Stable-Baselines3 PPO": theirs}, rounds)
    for name in sides:
        pair = {key: figures[key] for key in (name, "Stable-Baselines3 PPO")}
        report("IMPALA on CartPole-v1, 2 workers x 8 slots", pair, "env steps/s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    main(**vars(parser.parse_args()))
