"""PPO end to end against Stable-Baselines3's with the same settings, one thread.

8 environments x 128 steps, minibatches of 256, 4 passes, 64x64 tanh, learning rate 3e-4; where actions are continuous,
log deviations that are free of the state.

python benchmarks/ppo_against_sb3.py [--env CartPole-v1] [--steps 20480] [--rounds 5]    (needs: stable-baselines3)
"""

import argparse
import time

from common import alternate, report  # isort: skip - sets the number of threads before torch is loaded

import importlib.util

import torch

from rlframe.agents.ppo import PPOTrainer

torch.set_num_threads(1)

CONFIG = {
    "num_workers": 0,
    "num_envs_per_worker": 8,
    "rollout_fragment_length": 128,
    "train_batch_size": 1024,
    "sgd_minibatch_size": 256,
    "num_sgd_iter": 4,
    "lr": 3e-4,
    "lambda": 0.95,
    "clip_param": 0.2,
    "kl_coeff": 0.0,
    "vf_loss_coeff": 0.5,
    "vf_clip_param": 1e6,
    "grad_clip": 0.5,
    "model": {"fcnet_hiddens": [64, 64], "free_log_std": None},
    "min_iter_time_s": 0,
    "log_sys_usage": False,
    "seed": 0,
    "local_tf_session_args": {"intra_op_parallelism_threads": 1},
}


def main(env: str, steps: int, rounds: int) -> None:
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    model = PPO(
        "MlpPolicy",
        make_vec_env(env, 8, seed=0),
        n_steps=128,
        batch_size=256,
        n_epochs=4,
        learning_rate=3e-4,
        device="cpu",
        seed=0,
    )
    model.learn(2048)

    def side(framework: str) -> object:
        trainer = PPOTrainer({**CONFIG, "framework": framework}, env=env)
        trainer.train()

        def run() -> float:
            started = time.perf_counter()
            for _ in range(steps // 1024):
                trainer.train()
            return steps / (time.perf_counter() - started)

        return run

    def theirs() -> float:
        started = time.perf_counter()
        model.learn(steps, reset_num_timesteps=False)
        return steps / (time.perf_counter() - started)

    frameworks = ["torch", "tf"] if importlib.util.find_spec("tensorflow") else ["torch"]
    sides = {f"rlframe PPO, {framework}": side(framework) for framework in frameworks}
    figures = alternate({**sides, "Stable-Baselines3 PPO": theirs}, rounds)
    for name in sides:
        pair = {key: figures[key] for key in (name, "Stable-Baselines3 PPO")}
        report(f"PPO on {env}, 8 x 128, 4 x 256, 64x64", pair, "env steps/s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--steps", type=int, default=20480)
    parser.add_argument("--rounds", type=int, default=5)
    main(**vars(parser.parse_args()))
