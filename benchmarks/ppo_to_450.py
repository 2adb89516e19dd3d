"""What PPO takes to solve CartPole-v1, against Stable-Baselines3's with the same settings: env steps and seconds.

The run ends when the last 100 episodes have a mean return of 450; looked at once per train batch of 1,024 steps. The
settings are those of ppo_against_sb3.py, what they do not name is each side's default (rlframe's values are in units of
their targets); sides take turns, seed by seed.

python benchmarks/ppo_to_450.py [--framework torch|tf] [--seeds 5]       (needs: pip install stable-baselines3)
"""

import argparse
import statistics
import time
from typing import NamedTuple

from common import alternate  # noqa: F401  isort: skip - sets the number of threads before torch is loaded

import torch
from ppo_against_sb3 import CONFIG

from rlframe.agents.ppo import PPOTrainer

torch.set_num_threads(1)
BAR, BUDGET = 450.0, 500_000


class Run(NamedTuple):
    env_steps: int
    seconds: float
    reached: bool


def rlframe_run(framework: str, seed: int) -> Run:
    trainer = PPOTrainer({**CONFIG, "framework": framework, "seed": seed}, env="CartPole-v1")
    started = time.perf_counter()
    while True:
        result = trainer.train()
        reached = result["episode_reward_mean"] >= BAR
        if reached or result["timesteps_total"] >= BUDGET:
            run = Run(result["timesteps_total"], time.perf_counter() - started, reached)
            trainer.stop()
            return run


def sb3_run(seed: int) -> Run:
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    class UntilSolved(BaseCallback):
        """Ends after the learner has had the batch, as rlframe's run does."""

        reached, env_steps = False, 0

        def _on_step(self) -> bool:
            return not self.reached

        def _on_rollout_end(self) -> None:
            returns = [episode["r"] for episode in self.model.ep_info_buffer]
            self.reached, self.env_steps = bool(returns) and statistics.fmean(returns) >= BAR, self.num_timesteps

    model = PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", 8, seed=seed),
        n_steps=128,
        batch_size=256,
        n_epochs=4,
        learning_rate=3e-4,
        device="cpu",
        seed=seed,
    )
    until_solved = UntilSolved()
    started = time.perf_counter()
    model.learn(BUDGET, callback=until_solved)
    return Run(until_solved.env_steps, time.perf_counter() - started, until_solved.reached)


def main(framework: str, seeds: int) -> None:
    ours, theirs = f"rlframe PPO, {framework}", "Stable-Baselines3 PPO"
    sides = {ours: lambda seed: rlframe_run(framework, seed), theirs: sb3_run}
    runs: dict[str, list[Run]] = {name: [] for name in sides}
    for seed in range(seeds):
        for name, side in sides.items():
            run = side(seed)
            runs[name].append(run)
            verdict = "" if run.reached else f"  MISSED {BAR:.0f}"
            print(f"  {name:<24} seed {seed} {run.env_steps:>9,} env steps {run.seconds:>7.1f} s{verdict}", flush=True)
    print(f"PPO on CartPole-v1 to a mean return of {BAR:.0f}, means over {seeds} seeds")
    steps = {name: statistics.fmean(run.env_steps for run in runs[name]) for name in sides}
    seconds = {name: statistics.fmean(run.seconds for run in runs[name]) for name in sides}
    for name in sides:
        print(f"  {name:<24} {steps[name]:>16,.0f} env steps {seconds[name]:>7.1f} s")
    print(f"  ratio: env steps {steps[ours] / steps[theirs]:.2f}, seconds {seconds[ours] / seconds[theirs]:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--framework", choices=["torch", "tf"], default="torch")
    parser.add_argument("--seeds", type=int, default=5)
    main(**vars(parser.parse_args()))
