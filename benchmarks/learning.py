"""Env steps until the mean return of the last 100 episodes reaches 150 on CartPole-v1, seed by seed.

python benchmarks/learning.py [--algorithm DQN|SimpleQ|Rainbow] [--seeds 5]
"""

import argparse
import time

from common import alternate  # noqa: F401  isort: skip - sets the number of threads before torch is loaded

import torch

from rlframe.agents.dqn import DQNTrainer, SimpleQTrainer

torch.set_num_threads(1)
RAINBOW = {
    "num_atoms": 51, "v_min": 0.0, "v_max": 20.0, "noisy": True, "n_step": 3, "gamma": 0.95,
    "exploration_config": {"type": "EpsilonGreedy", "initial_epsilon": 0.0, "final_epsilon": 0.0},
    "final_prioritized_replay_beta": 1.0,
}  # fmt: skip
RUNS = {
    "DQN": (DQNTrainer, {"n_step": 3, "gamma": 0.95}),
    "SimpleQ": (SimpleQTrainer, {}),
    "Rainbow": (DQNTrainer, RAINBOW),
}


def main(algorithm: str, seeds: int, bar: float, budget: int) -> None:
    cls, config = RUNS[algorithm]
    for seed in range(seeds):
        trainer = cls({**config, "seed": seed, "min_iter_time_s": 0, "log_sys_usage": False}, env="CartPole-v1")
        started, best = time.perf_counter(), 0.0
        while True:
            result = trainer.train()
            best = max(best, result["episode_reward_mean"])
            if best >= bar or result["timesteps_total"] >= budget:
                break
        verdict = "reached" if best >= bar else "MISSED"
        print(f"{algorithm} seed {seed}: {verdict} {bar:.0f} at {result['timesteps_total']} steps "
              f"(best mean {best:.1f}, {time.perf_counter() - started:.0f} s)", flush=True)  # fmt: skip
        trainer.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--algorithm", choices=list(RUNS), default="DQN")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--bar", type=float, default=150.0)
    parser.add_argument("--budget", type=int, default=50_000)
    main(**vars(parser.parse_args()))
