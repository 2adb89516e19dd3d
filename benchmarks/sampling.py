"""Env steps per second of a rollout worker against Gymnasium's SyncVectorEnv with random actions.

The worker does all of a sampler's work: actions, log-probabilities, values, columns, advantages.

Measured twice: over single environments, and over CartPole's own vectorised version (`vectorized_env`).

python benchmarks/sampling.py [--slots 16] [--rounds 7]
"""

import argparse
import time

from common import alternate, report  # isort: skip - sets the number of threads before NumPy is loaded

import gymnasium as gym
import numpy as np

from rlframe.config.common import CommonConfig
from rlframe.env.registry import resolve_env
from rlframe.evaluation.postprocessing import compute_gae_for_sample_batch
from rlframe.evaluation.rollout_worker import RolloutWorker
from rlframe.policy import PolicySpec, build_policy_class


def value_predictions(policy, input_dict, state_batches, model, action_dist):
    return {"vf_preds": model.value_function()}


value_predictions.only_values = True

ActorCritic = build_policy_class(
    "ActorCritic",
    framework="torch",
    loss_fn=lambda policy, model, dist_class, batch: model(batch)[0].sum(),
    postprocess_fn=compute_gae_for_sample_batch,
    extra_action_out_fn=value_predictions,
)


def make_worker(slots: int, vectorized: bool = False) -> RolloutWorker:
    config = CommonConfig.defaults()
    config.update(env="CartPole-v1", vectorized_env=vectorized)
    config.update(num_envs_per_worker=slots, rollout_fragment_length=128, seed=0, use_gae=True, use_critic=True)
    config["lambda"] = 0.95
    config["model"].update(fcnet_hiddens=[64, 64], vf_share_layers=False)
    worker = RolloutWorker(env_creator=resolve_env("CartPole-v1")[1], policy_config=config)
    worker.add_policies(PolicySpec(policy_class=ActorCritic))
    for _ in range(5):
        worker.sample()
    return worker


def main(slots: int, rounds: int) -> None:
    worker = make_worker(slots)
    assert {"advantages", "value_targets", "action_logp", "vf_preds"} <= set(worker.sample())
    venv = gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1") for _ in range(slots)])
    venv.reset(seed=0)
    actions = np.random.default_rng(0).integers(2, size=(1000, slots))

    def sampling(worker: RolloutWorker) -> float:
        started = time.perf_counter()
        rows = sum(worker.sample().count for _ in range(8))
        return rows / (time.perf_counter() - started)

    def gymnasium() -> float:
        started = time.perf_counter()
        for row in actions:
            venv.step(row)
        return actions.size / (time.perf_counter() - started)

    vectorised = make_worker(slots, vectorized=True)
    others = "SyncVectorEnv, random actions"
    sides = {
        "rlframe worker, 64x64 policy": lambda: sampling(worker),
        "the same, vectorized_env": lambda: sampling(vectorised),
        others: gymnasium,
    }
    figures = alternate(sides, rounds)
    for name in list(sides)[:2]:
        pair = {key: figures[key] for key in (name, others)}
        report(f"Sampling, CartPole-v1, {slots} slots", pair, "env steps/s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=7)
    main(**vars(parser.parse_args()))
