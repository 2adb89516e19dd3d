"""SlateQ recommends what users watch longest: more than what they would click, and more than any."""

import numpy as np
import pytest

from rlframe.agents.slateq import SlateQTrainer
from rlframe.examples.env.recommender_systems import InterestEvolutionRecSimEnv

CONFIG = {
    "rollout_fragment_length": 4,
    "batch_mode": "truncate_episodes",
    "lr_q_model": 1e-3,
    "timesteps_per_iteration": 8000,
    "evaluation_num_episodes": 100,
    "env_config": {"num_candidates": 10, "slate_size": 2},
    "log_sys_usage": False,
}


def greedy_return(strategy, seed, steps=24_000):
    trainer = SlateQTrainer({**CONFIG, "slateq_strategy": strategy, "seed": seed}, env=InterestEvolutionRecSimEnv)
    for _ in range(steps // 8000):
        trainer.train()
    made = trainer.evaluate()["evaluation"]["episode_reward_mean"]
    trainer.stop()
    return made


@pytest.mark.learning
def test_slates_are_watched_longer_than_myopic_ones_after_24k_steps():
    found = {strategy: [greedy_return(strategy, seed) for seed in range(3)] for strategy in ("QL", "MYOP")}
    found["RANDOM"] = [greedy_return("RANDOM", 0, steps=0)]
    means = {strategy: np.mean(values) for strategy, values in found.items()}
    assert means["QL"] >= 178, found
    assert min(found["QL"]) > max(found["MYOP"]), found
    assert means["MYOP"] > means["RANDOM"] + 5, found
