"""The full DQN loop against Stable-Baselines3's with the same settings, one thread.

CartPole-v1, 256x256, batch 32, one update per 4 steps, uniform replay, no double or dueling networks.

python benchmarks/dqn_against_sb3.py [--steps 4000] [--rounds 5] [--cpu]       (needs: pip install stable-baselines3)
"""

import argparse
import time

from common import alternate, report  # isort: skip - sets the number of threads before torch is loaded

import torch

from rlframe.agents.dqn import DQNTrainer

torch.set_num_threads(1)

CONFIG = {
    "train_batch_size": 32,
    "rollout_fragment_length": 4,
    "model": {"fcnet_hiddens": [256, 256], "fcnet_activation": "relu"},
    "hiddens": [],
    "dueling": False,
    "double_q": False,
    "prioritized_replay": False,
    "lr": 1e-4,
    "grad_clip": 10.0,
    "learning_starts": 1000,
    "target_network_update_freq": 500,
    "replay_buffer_config": {"capacity": 50_000},
    "min_iter_time_s": 0,
    "timesteps_per_iteration": 1000,
    "log_sys_usage": False,
    "seed": 0,
}


def main(steps: int, rounds: int, cpu: bool) -> None:
    from stable_baselines3 import DQN

    clock = time.thread_time if cpu else time.perf_counter
    trainer = DQNTrainer(CONFIG, env="CartPole-v1")
    for _ in range(2):
        trainer.train()
    model = DQN(
        "MlpPolicy",
        "CartPole-v1",
        policy_kwargs={"net_arch": [256, 256]},
        batch_size=32,
        train_freq=4,
        gradient_steps=1,
        learning_starts=1000,
        buffer_size=50_000,
        target_update_interval=500,
        learning_rate=1e-4,
        max_grad_norm=10,
        device="cpu",
        seed=0,
    )
    model.learn(2000)

    def ours() -> float:
        started, before = clock(), trainer.train()["timesteps_total"]
        total = before
        while total - before < steps - 1000:
            total = trainer.train()["timesteps_total"]
        return (total - before + 1000) / (clock() - started)

    def theirs() -> float:
        started = clock()
        model.learn(steps, reset_num_timesteps=False)
        return steps / (clock() - started)

    figures = alternate({"rlframe DQN": ours, "Stable-Baselines3 DQN": theirs}, rounds)
    unit = "env steps/s of CPU" if cpu else "env steps/s"
    report("DQN on CartPole-v1, 256x256, an update per 4 steps", figures, unit)
    print(trainer.plan_report())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu", action="store_true", help="CPU seconds of this thread, on a busy machine")
    main(**vars(parser.parse_args()))
