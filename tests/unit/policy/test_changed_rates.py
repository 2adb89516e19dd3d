"""Learning rates behind a restore: what the config says now, where it says something else than when it was saved."""

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.pg import PGTrainer
from rlframe.agents.sac import SACTrainer
from tests.helpers.frameworks import TORCH_FIRST

SPACES = gym.spaces.Box(-1.0, 1.0, (3,), np.float32), gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
RATES = ("actor_learning_rate", "critic_learning_rate", "entropy_learning_rate")


def sac(framework, *rates):
    return made(SACTrainer, framework, optimization=dict(zip(RATES, rates, strict=True)))


def made(trainer, framework, **changed):
    spaces = dict(zip(("observation_space", "action_space"), SPACES, strict=True))
    return trainer({"framework": framework, "num_workers": 0, "log_sys_usage": False, **spaces, **changed}).get_policy()


def rates_of(policy):
    torchs = [getattr(optimizer, "param_groups", None) for optimizer in policy._optimizers]
    rates = [groups[0]["lr"] for groups in torchs if groups]
    return rates or [float(optimizer.learning_rate.numpy()) for optimizer in policy._optimizers]


@pytest.mark.parametrize("framework", TORCH_FIRST)
@pytest.mark.parametrize(
    ("before", "after", "rates"),
    [
        (lambda of: made(PGTrainer, of, lr=0.1), lambda of: made(PGTrainer, of, lr=0.2), [0.2]),
        (lambda of: sac(of, 0.1, 0.2, 0.3), lambda of: sac(of, 0.1, 0.5, 0.3), [0.7, 0.5, 0.7]),
    ],
    ids=["PG", "SAC"],
)
def test_a_rate_that_the_config_has_changed_is_followed_and_others_go_on(framework, before, after, rates):
    saved, policy = before(framework), after(framework)
    for optimizer in saved._optimizers:  # as a callback may
        for group in getattr(optimizer, "param_groups", [{}]):
            group["lr"] = 0.7
        if framework == "tf":
            optimizer.learning_rate.assign(0.7)
    policy.set_state(saved.get_state())
    assert rates_of(policy) == pytest.approx(rates)
    state = saved.get_state()
    del state["_rates"]  # as older checkpoints are
    policy.set_state(state)
    assert rates_of(policy) == pytest.approx([0.7] * len(rates))
