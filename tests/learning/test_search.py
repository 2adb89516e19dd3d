"""ES and ARS reach the returns that RLlib's tuned examples asked for, in as many steps at most."""

import pytest

from rlframe.agents.registry import get_trainer_class

CONFIGS = {
    "ES": {"episodes_per_batch": 50},
    "ARS": {"num_rollouts": 25, "rollouts_used": 13, "noise_stdev": 0.1, "sgd_stepsize": 0.1,
            "model": {"fcnet_hiddens": []}},
}  # fmt: skip


@pytest.mark.learning
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("name", "bar"), [("ES", 100.0), ("ARS", 150.0)])
def test_a_pole_is_balanced_within_500k_steps(name, bar, seed):
    config = {**CONFIGS[name], "num_workers": 0, "seed": seed, "min_iter_time_s": 0}
    trainer = get_trainer_class(name)(config, env="CartPole-v1")
    result = trainer.train()
    while result["episode_reward_mean"] < bar:
        result = trainer.train()
        assert result["timesteps_total"] < 500_000, result["episode_reward_mean"]
