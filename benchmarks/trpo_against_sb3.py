"""TRPO end to end against sb3-contrib's with the same settings, one thread.

CartPole-v1 and Pendulum-v1, 8 environments x 128 steps, 64x64 tanh, at most 15 conjugate gradient steps, 10 passes of
minibatches of 128 for the values.

python benchmarks/trpo_against_sb3.py [--steps 20480] [--rounds 5]       (needs: pip install sb3-contrib)
"""

import argparse
import time

from common import alternate, report  # isort: skip - sets the number of threads before torch is loaded

import importlib.util
from collections.abc import Callable

import torch

from rlframe.agents.trpo import TRPOTrainer

torch.set_num_threads(1)

CONFIG = {
    "num_workers": 0,
    "num_envs_per_worker": 8,
    "rollout_fragment_length": 128,
    "train_batch_size": 1024,
    "lr": 1e-3,
    "lambda": 0.95,
    "max_kl": 0.01,
    "cg_iters": 15,
    "cg_damping": 0.1,
    "line_search_steps": 10,
    "line_search_shrink": 0.8,
    "vf_num_sgd_iter": 10,
    "vf_sgd_minibatch_size": 128,
    "model": {"fcnet_hiddens": [64, 64], "fcnet_activation": "tanh"},
    "min_iter_time_s": 0,
    "log_sys_usage": False,
    "seed": 0,
    "local_tf_session_args": {"intra_op_parallelism_threads": 1},
}
THEIRS = {
    "n_steps": 128,
    "batch_size": 128,
    "learning_rate": 1e-3,
    "gae_lambda": 0.95,
    "target_kl": 0.01,
    "cg_max_steps": 15,
    "cg_damping": 0.1,
    "line_search_max_iter": 10,
    "line_search_shrinking_factor": 0.8,
    "n_critic_updates": 10,
}


def main(steps: int, rounds: int) -> None:
    frameworks = ["torch", "tf"] if importlib.util.find_spec("tensorflow") else ["torch"]
    for env in ("CartPole-v1", "Pendulum-v1"):
        sides = {f"rlframe TRPO, {framework}": ours(env, framework, steps) for framework in frameworks}
        figures = alternate({**sides, "sb3-contrib TRPO": theirs(env, steps)}, rounds)
        for name in sides:
            pair = {key: figures[key] for key in (name, "sb3-contrib TRPO")}
            report(f"TRPO on {env}, 8 x 128, 10 x 128, 64x64", pair, "env steps/s")


def ours(env: str, framework: str, steps: int) -> Callable[[], float]:
    gaussian = env == "Pendulum-v1"  # with deviations free of the state, as theirs
    model = {**CONFIG["model"], "free_log_std": gaussian}
    trainer = TRPOTrainer({**CONFIG, "model": model, "framework": framework}, env=env)
    trainer.train()

    def run() -> float:
        started = time.perf_counter()
        for _ in range(steps // 1024):
            trainer.train()
        return steps / (time.perf_counter() - started)

    return run


def theirs(env: str, steps: int) -> Callable[[], float]:
    from sb3_contrib import TRPO
    from stable_baselines3.common.env_util import make_vec_env

    model = TRPO("MlpPolicy", make_vec_env(env, 8, seed=0), device="cpu", seed=0, **THEIRS)
    model.learn(2048)

    def run() -> float:
        started = time.perf_counter()
        model.learn(steps, reset_num_timesteps=False)
        return steps / (time.perf_counter() - started)

    return run


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20480)
    parser.add_argument("--rounds", type=int, default=5)
    main(**vars(parser.parse_args()))
