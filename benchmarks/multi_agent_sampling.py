"""Sampling four CartPoles per environment with one shared policy, against single CartPoles at as many rows per step.

8 slots x 4 agents against 32 slots; a 64x64 policy; agent steps/s and env steps/s of `RolloutWorker.sample()`.

python benchmarks/multi_agent_sampling.py [--rounds 5] [--seconds 2]
"""

import argparse
import time

from common import alternate, report  # isort: skip - sets the number of threads before torch is loaded

import torch

from rlframe.agents.ppo import PPOTrainer
from rlframe.examples.env.multi_agent import MultiAgentCartPole

torch.set_num_threads(1)
CONFIG = {
    "num_workers": 0,
    "rollout_fragment_length": 100,
    "train_batch_size": 3200,
    "sgd_minibatch_size": 128,
    "model": {"fcnet_hiddens": [64, 64]},
    "seed": 0,
    "log_sys_usage": False,
}


def main(rounds: int, seconds: float) -> None:
    def side(**overrides: object) -> object:
        env = overrides.pop("env")
        worker = PPOTrainer({**CONFIG, **overrides}, env=env).workers.local_worker()
        worker.sample()

        def run() -> float:
            steps, started = 0, time.perf_counter()
            while time.perf_counter() - started < seconds:
                steps += worker.sample().agent_steps()
            return steps / (time.perf_counter() - started)

        return run

    figures = alternate(
        {
            "four agents, 8 slots": side(env=MultiAgentCartPole, num_envs_per_worker=8, env_config={"num_agents": 4}),
            "one agent, 32 slots": side(env="CartPole-v1", num_envs_per_worker=32),
        },
        rounds,
    )
    report("Sampling with several agents", figures, "agent steps/s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    main(**vars(parser.parse_args()))
