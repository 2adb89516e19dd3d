"""The same programs under RLlib 1.9.2 and here: what they learn, and what processor time they take.

Both sides run in processes of their own, one after the other, without remote workers, on one thread; the old side
needs an interpreter in which RLlib 1.9.2 is installed (Python 3.8, torch 1.12, gym 0.21).

python benchmarks/beside_rllib19.py --rllib-python PATH [--only ppo dqn] [--seeds 0 1 2] [--framework torch]
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time

#: Algorithm, environment, what the config sets, env steps. What is not set is RLlib's default.
CASES = {
    "ppo": ("PPO", "CartPole-v0", {}, 60000),
    "ppo_tuned": (
        "PPO",
        "CartPole-v0",
        {
            "lr": 3e-4,
            "observation_filter": "MeanStdFilter",
            "num_sgd_iter": 6,
            "vf_loss_coeff": 0.01,
            "model": {"fcnet_hiddens": [32], "fcnet_activation": "linear", "vf_share_layers": True},
        },
        60000,
    ),
    "ppo_pendulum": (
        "PPO",
        "Pendulum-v1",
        {
            "train_batch_size": 512,
            "num_envs_per_worker": 20,
            "lambda": 0.1,
            "gamma": 0.95,
            "lr": 3e-4,
            "sgd_minibatch_size": 64,
            "num_sgd_iter": 6,
            "observation_filter": "MeanStdFilter",
        },
        100000,
    ),
    "a2c": ("A2C", "CartPole-v0", {"lr": 1e-3, "train_batch_size": 100}, 60000),
    "pg": ("PG", "CartPole-v0", {"lr": 2e-3, "train_batch_size": 500}, 60000),
    "dqn": ("DQN", "CartPole-v0", {}, 25000),
    "dqn_tuned": (
        "DQN",
        "CartPole-v0",
        {"n_step": 3, "model": {"fcnet_hiddens": [64], "fcnet_activation": "linear"}},
        20000,
    ),
    "simpleq": ("SimpleQ", "CartPole-v0", {}, 20000),
    "sac": (
        "SAC",
        "Pendulum-v1",
        {"learning_starts": 256, "target_network_update_freq": 1, "tau": 0.005},
        7000,
    ),
    "td3": (
        "TD3",
        "Pendulum-v1",
        {
            "learning_starts": 5000,
            "actor_hiddens": [64, 64],
            "critic_hiddens": [64, 64],
            "exploration_config": {"type": "OrnsteinUhlenbeckNoise", "random_timesteps": 0},
        },
        15000,
    ),
}


def train(package: str, case: str, seed: int, framework: str) -> None:
    """Runs one case in this process, and prints its last return and the driver's processor seconds of training."""
    algorithm, env, config, steps = CASES[case]
    if package == "rlframe":
        registry = importlib.import_module("rlframe.agents.registry")
    else:
        importlib.import_module("ray").init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        registry = importlib.import_module("ray.rllib.agents.registry")
    settings = dict(config, num_workers=0, framework=framework, seed=seed)
    trainer = registry.get_trainer_class(algorithm)(config=settings, env=env)
    began, result = time.process_time(), {"timesteps_total": 0}
    while result["timesteps_total"] < steps:
        result = trainer.train()
    seconds = (time.process_time() - began) * steps / result["timesteps_total"]
    print("figures: " + json.dumps([result["episode_reward_mean"], seconds]), flush=True)
    trainer.stop()


def measure(python: str, package: str, case: str, seed: int, framework: str) -> list[float]:
    """Runs one case in a process of its own."""
    command = [python, __file__, "--train", package, case, str(seed), framework]
    done = subprocess.run(command, capture_output=True, text=True, env=one_thread())
    figures = [line for line in done.stdout.splitlines() if line.startswith("figures: ")]
    if done.returncode or not figures:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return list(json.loads(figures[0][len("figures: ") :]))


def one_thread() -> dict[str, str]:
    """Returns the environment of a measured process."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1"}


def main(rllib_python: str, only: list[str], seeds: list[int], framework: str) -> None:
    print(f"{framework}, seeds {seeds}: mean return over the last episodes, processor seconds (median)")
    print(f"{'case':<14} {'env steps':>9}  {'RLlib 1.9.2':>34}  {'rlframe':>34}  seconds, ratio")
    for case in only or CASES:
        sides: dict[str, list[list[float]]] = {"ray.rllib": [], "rlframe": []}
        for seed in seeds:
            for package, python in (("ray.rllib", rllib_python), ("rlframe", sys.executable)):
                sides[package].append(measure(python, package, case, seed, framework))
        seconds = [statistics.median(run[1] for run in runs) for runs in sides.values()]
        returns = [", ".join(f"{run[0]:.0f}" for run in runs) for runs in sides.values()]
        columns = "  ".join(f"{text + f' in {took:.1f} s':>34}" for text, took in zip(returns, seconds, strict=True))
        print(f"{case:<14} {CASES[case][3]:>9}  {columns}  {seconds[0] / seconds[1]:.1f}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--train"]:
        train(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
    else:
        parser = argparse.ArgumentParser()
        parser.add_argument("--rllib-python", required=True)
        parser.add_argument("--only", nargs="*", default=[], choices=list(CASES))
        parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
        parser.add_argument("--framework", default="torch", choices=["torch", "tf"])
        main(**vars(parser.parse_args()))
