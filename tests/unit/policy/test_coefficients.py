"""Numbers of policies that follow a schedule, or what a program sets them to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rlframe.policy.coefficients import AdaptiveKL, EntropyCoefficient
from rlframe.policy.policy import LearningRate
from rlframe.utils.schedules import ConstantSchedule


def made() -> Any:
    policy = SimpleNamespace(rates=[])
    policy.set_learning_rate = policy.rates.append
    return policy


def test_a_number_without_a_schedule_stays_what_a_program_sets() -> None:
    policy = made()
    part = EntropyCoefficient(policy, 0.1)
    policy.entropy_coeff = 0.7
    part.on_timestep(100)
    assert policy.entropy_coeff == 0.7
    policy.entropy_coeff_schedule = ConstantSchedule(0.3)
    part.on_timestep(200)
    assert policy.entropy_coeff == 0.3


def test_a_schedule_goes_over_what_a_program_sets() -> None:
    policy = made()
    part = EntropyCoefficient(policy, 0.1, [[0, 0.2], [100, 0.0]])
    policy.entropy_coeff = 0.7
    part.on_timestep(50)
    assert policy.entropy_coeff == 0.1


def test_optimisers_get_the_learning_rate_that_a_program_sets() -> None:
    policy = made()
    part = LearningRate(policy, 0.01)
    part.on_timestep(1)
    policy.cur_lr = 0.5
    part.on_timestep(2)
    assert policy.rates == [0.01, 0.5]


def test_an_adapted_penalty_goes_on_unless_the_config_gives_another_start() -> None:
    saved, same, perturbed = made(), made(), made()
    part = AdaptiveKL(saved, 0.2, 0.01)
    part.update(1.0)
    AdaptiveKL(same, 0.2, 0.01).set_state(part.get_state())
    AdaptiveKL(perturbed, 0.6, 0.01).set_state(part.get_state())
    assert (same.kl_coeff, perturbed.kl_coeff) == (pytest.approx(0.3), 0.6)
    AdaptiveKL(perturbed, 0.6, 0.01).set_state({"kl_coeff": 0.3})  # as older checkpoints are
    assert perturbed.kl_coeff == 0.3
