"""Env steps until the mean return of the last 100 episodes reaches RLlib's bar, seed by seed.

python benchmarks/learning.py [--algorithm PPO|IMPALA|"PPO, Pendulum"|...] [--framework torch|tf] [--seeds 5]

Runs with remote workers are asynchronous but for DD-PPO's: each differs. Beside other programs, start them with
RAY_worker_niceness=0 in the environment: Ray lets its workers run after everybody else.
"""

import argparse
import math
import time
from typing import Any, NamedTuple

from common import alternate  # noqa: F401  isort: skip - sets the number of threads before torch is loaded

import gymnasium
import numpy as np
import torch

from rlframe.agents.presets import get_preset
from rlframe.agents.registry import get_trainer_class
from rlframe.examples.env.repeat_after_me_env import RepeatAfterMeEnv
from rlframe.examples.env.stateless_cartpole import StatelessCartPole
from rlframe.examples.env.two_step_game import TwoStepGame
from rlframe.policy.policy import PolicySpec

torch.set_num_threads(1)


class Run(NamedTuple):
    algorithm: str
    config: dict[str, Any]
    env: Any = "CartPole-v1"
    bar: float = 150.0
    budget: int = 500_000


def far_actions(_config: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.wrappers.RescaleAction(gymnasium.make("Pendulum-v1"), np.float32(300), np.float32(500))


class Lake(gymnasium.Wrapper[Any, Any, Any, Any]):
    """FrozenLake 8x8 without holes whose 20th step terminates, as RLlib's `horizon` did."""

    def __init__(self, _config: Any) -> None:
        desc = ["SFFFFFFF", *["FFFFFFFF"] * 6, "FFFFFFFG"]
        super().__init__(gymnasium.make("FrozenLake-v1", desc=desc, is_slippery=False))
        self.steps = 0

    def reset(self, **options: Any) -> Any:
        self.steps = 0
        return super().reset(**options)

    def step(self, action: Any) -> Any:
        obs, reward, terminated, _, info = super().step(action)
        self.steps += 1
        return obs, reward, terminated or self.steps >= 20, False, info


RAINBOW = {
    "num_atoms": 51, "v_min": 0.0, "v_max": 20.0, "noisy": True, "n_step": 3, "gamma": 0.95,
    "exploration_config": {"type": "EpsilonGreedy", "initial_epsilon": 0.0, "final_epsilon": 0.0},
    "final_prioritized_replay_beta": 1.0,
}  # fmt: skip
LINEAR = {"fcnet_hiddens": [32], "fcnet_activation": "linear", "vf_share_layers": True}
PPO = {
    "num_workers": 0, "lr": 3e-4, "gamma": 0.99, "num_sgd_iter": 6, "vf_loss_coeff": 0.01,
    "observation_filter": "MeanStdFilter", "model": LINEAR,
}  # fmt: skip
PENDULUM = {
    "num_workers": 0, "num_envs_per_worker": 20, "train_batch_size": 512, "sgd_minibatch_size": 64, "num_sgd_iter": 6,
    "gamma": 0.95, "lambda": 0.1, "lr": 3e-4, "vf_clip_param": 10.0, "observation_filter": "MeanStdFilter",
}  # fmt: skip
REPEAT = {"env_config": {"repeat_delay": 2}, "num_workers": 0, "num_envs_per_worker": 20}
REPEAT_LSTM = {
    **REPEAT, "gamma": 0.9, "lr": 3e-4, "num_sgd_iter": 5, "entropy_coeff": 1e-5,
    "model": {
        "fcnet_hiddens": [64], "use_lstm": True, "lstm_cell_size": 64, "max_seq_len": 20, "vf_share_layers": True,
    },
}  # fmt: skip
REPEAT_ATTENTION = {
    **REPEAT, "num_sgd_iter": 10, "entropy_coeff": 0.001, "vf_loss_coeff": 1e-5,
    "model": {
        "use_attention": True, "max_seq_len": 10, "attention_num_transformer_units": 1, "attention_dim": 32,
        "attention_memory_inference": 10, "attention_memory_training": 10, "attention_num_heads": 1,
        "attention_head_dim": 32, "attention_position_wise_mlp_dim": 32,
    },
}  # fmt: skip
BALANCE_LSTM = {
    "num_workers": 0, "num_sgd_iter": 5, "vf_loss_coeff": 1e-4,
    "model": {"use_lstm": True, "lstm_cell_size": 256, "lstm_use_prev_action": True},
}  # fmt: skip
WORKERS = {"num_workers": 2, "num_cpus_per_worker": 0.5}
ASYNC = {**WORKERS, "timesteps_per_iteration": 2000}
IMPALA_LSTM = {**ASYNC, "vf_loss_coeff": 0.01, "model": {"use_lstm": True, "lstm_cell_size": 256}}
APPO = {
    **ASYNC, "num_workers": 1, "num_envs_per_worker": 5, "rollout_fragment_length": 10, "train_batch_size": 10,
    "vtrace": False, "observation_filter": "MeanStdFilter",
}  # fmt: skip
APPO_VTRACE = {
    **ASYNC, "num_envs_per_worker": 5, "num_sgd_iter": 1, "vf_loss_coeff": 0.01, "vtrace_drop_last_ts": False,
    "observation_filter": "MeanStdFilter", "model": LINEAR,
}  # fmt: skip
LAKE = {
    **ASYNC, "rollout_fragment_length": 10, "batch_mode": "complete_episodes", "vtrace_drop_last_ts": False,
    "num_envs_per_worker": 5, "vf_loss_coeff": 0.01,
}  # fmt: skip
TWO_STEPS = {
    "num_workers": 0, "learning_starts": 100, "env_config": {"actions_are_logits": True},
    "multiagent": {
        "policies": {"pol1": PolicySpec(config={"agent_id": 0}), "pol2": PolicySpec(config={"agent_id": 1})},
        "policy_mapping_fn": lambda agent: "pol2" if agent else "pol1",
    },
}  # fmt: skip
RUNS = {
    "PG": Run("PG", {"num_workers": 0, "timesteps_per_iteration": 1000}),
    "A2C": Run("A2C", {"num_workers": 0, "lr": 1e-3, "timesteps_per_iteration": 1000}),
    "A3C": Run("A3C", {**ASYNC, "num_workers": 1, "gamma": 0.95}, budget=200_000),
    "ES": Run("ES", {**WORKERS, "episodes_per_batch": 50}, bar=100, budget=500_000),
    "ARS": Run(
        "ARS",
        {
            **WORKERS,
            "num_rollouts": 25,
            "rollouts_used": 13,
            "model": {"fcnet_hiddens": []},
            "noise_stdev": 0.1,
            "sgd_stepsize": 0.1,
        },
        budget=500_000,
    ),
    "PPO": Run("PPO", PPO),
    "PPO, Pendulum": Run("PPO", PENDULUM, "Pendulum-v1", -500, 400_000),
    "PPO, Pendulum with actions in [300, 500]": Run("PPO", PENDULUM, far_actions, -500, 400_000),
    "PPO, LSTM, RepeatAfterMe": Run("PPO", REPEAT_LSTM, RepeatAfterMeEnv, 50, 100_000),
    "PPO, attention, RepeatAfterMe": Run("PPO", REPEAT_ATTENTION, RepeatAfterMeEnv, 80),
    "PPO, LSTM, StatelessCartPole": Run("PPO", BALANCE_LSTM, StatelessCartPole, budget=100_000),
    "APPO": Run("APPO", APPO, budget=200_000),
    "APPO, V-trace": Run("APPO", APPO_VTRACE, bar=180, budget=200_000),
    "APPO, FrozenLake": Run("APPO", LAKE, Lake, 0.99, 1_000_000),
    "APPO, Pendulum": Run("APPO", ASYNC, "Pendulum-v1", -1000),
    "IMPALA": Run("IMPALA", ASYNC),
    "IMPALA, LSTM, StatelessCartPole": Run("IMPALA", IMPALA_LSTM, StatelessCartPole, budget=100_000),
    "IMPALA, Pendulum": Run("IMPALA", ASYNC, "Pendulum-v1", -700),
    "DDPPO": Run("DDPPO", WORKERS, budget=100_000),
    "DDPPO, Pendulum": Run(
        "DDPPO", {**WORKERS, "observation_filter": "MeanStdFilter", "lambda": 0.1}, "Pendulum-v1", -300, 1_000_000
    ),
    "MADDPG": Run("MADDPG", TWO_STEPS, TwoStepGame, 7.0, 50_000),
    "SAC": Run("SAC", get_preset("SAC", "CartPole-v1"), budget=100_000),
    "SAC, Pendulum": Run("SAC", get_preset("SAC", "Pendulum-v1"), "Pendulum-v1", -200, 30_000),
    "TD3, Pendulum": Run("TD3", get_preset("TD3", "Pendulum-v1"), "Pendulum-v1", -200, 30_000),
    "APEX": Run("APEX", get_preset("APEX", "CartPole-v1"), budget=250_000),
    "DDPG, Pendulum": Run("DDPG", get_preset("DDPG", "Pendulum-v1"), "Pendulum-v1", -200, 30_000),
    "DQN": Run("DQN", {"n_step": 3, "gamma": 0.95}),
    "SimpleQ": Run("SimpleQ", {}),
    "Rainbow": Run("DQN", RAINBOW),
}


def main(algorithm: str, framework: str, seeds: int) -> None:
    run = RUNS[algorithm]
    common = {"framework": framework, "min_iter_time_s": 0, "log_sys_usage": False}
    for seed in range(seeds):
        trainer = get_trainer_class(run.algorithm)({**run.config, **common, "seed": seed}, env=run.env)
        started, best = time.perf_counter(), -math.inf
        while True:
            result = trainer.train()
            best = max(best, result["episode_reward_mean"]) if result["episodes_total"] else best
            if best >= run.bar or result["timesteps_total"] >= run.budget:
                break
        verdict = "reached" if best >= run.bar else "MISSED"
        print(f"{algorithm} in {framework}, seed {seed}: {verdict} {run.bar:g} at {result['timesteps_total']} steps "
              f"(best mean {best:.1f}, {time.perf_counter() - started:.0f} s)", flush=True)  # fmt: skip
        trainer.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--algorithm", choices=list(RUNS), default="DQN")
    parser.add_argument("--framework", choices=["torch", "tf"], default="torch")
    parser.add_argument("--seeds", type=int, default=5)
    main(**vars(parser.parse_args()))
