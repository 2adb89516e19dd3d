"""Env steps until the mean return of the last 100 episodes reaches 150 on CartPole-v1, seed by seed.

python benchmarks/learning.py [--algorithm DQN|SimpleQ|Rainbow|PG|A2C|PPO] [--framework torch|tf] [--seeds 5]
"""

import argparse
import time

from common import alternate  # noqa: F401  isort: skip - sets the number of threads before torch is loaded

import torch

from rlframe.agents.a3c import A2CTrainer
from rlframe.agents.dqn import DQNTrainer, SimpleQTrainer
from rlframe.agents.pg import PGTrainer
from rlframe.agents.ppo import PPOTrainer

torch.set_num_threads(1)
RAINBOW = {
    "num_atoms": 51, "v_min": 0.0, "v_max": 20.0, "noisy": True, "n_step": 3, "gamma": 0.95,
    "exploration_config": {"type": "EpsilonGreedy", "initial_epsilon": 0.0, "final_epsilon": 0.0},
    "final_prioritized_replay_beta": 1.0,
}  # fmt: skip
PPO = {
    "num_workers": 0, "lr": 3e-4, "gamma": 0.99, "num_sgd_iter": 6, "vf_loss_coeff": 0.01,
    "observation_filter": "MeanStdFilter",
    "model": {"fcnet_hiddens": [32], "fcnet_activation": "linear", "vf_share_layers": True},
}  # fmt: skip
RUNS = {
    "PG": (PGTrainer, {"timesteps_per_iteration": 1000}),
    "A2C": (A2CTrainer, {"num_workers": 0, "lr": 1e-3, "timesteps_per_iteration": 1000}),
    "PPO": (PPOTrainer, PPO),
    "DQN": (DQNTrainer, {"n_step": 3, "gamma": 0.95}),
    "SimpleQ": (SimpleQTrainer, {}),
    "Rainbow": (DQNTrainer, RAINBOW),
}


def main(algorithm: str, framework: str, seeds: int, bar: float, budget: int) -> None:
    cls, config = RUNS[algorithm]
    common = {"framework": framework, "min_iter_time_s": 0, "log_sys_usage": False}
    for seed in range(seeds):
        trainer = cls({**config, **common, "seed": seed}, env="CartPole-v1")
        started, best = time.perf_counter(), 0.0
        while True:
            result = trainer.train()
            best = max(best, result["episode_reward_mean"])
            if best >= bar or result["timesteps_total"] >= budget:
                break
        verdict = "reached" if best >= bar else "MISSED"
        print(f"{algorithm} in {framework}, seed {seed}: {verdict} {bar:.0f} at {result['timesteps_total']} steps "
              f"(best mean {best:.1f}, {time.perf_counter() - started:.0f} s)", flush=True)  # fmt: skip
        trainer.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--algorithm", choices=list(RUNS), default="DQN")
    parser.add_argument("--framework", choices=["torch", "tf"], default="torch")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--bar", type=float, default=150.0)
    parser.add_argument("--budget", type=int, default=500_000)
    main(**vars(parser.parse_args()))
