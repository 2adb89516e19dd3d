"""Coefficients of losses as parts of policies: the entropy's by schedule, the divergence's adapted to what that is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlframe.policy.policy import Component, LearningRate, Scheduled


class EntropyCoefficient(Scheduled):
    """The weight of the entropy, `entropy_coeff`; a schedule that is a number is the step at which it reaches 0."""

    def __init__(self, policy: Any, value: float, points: Any = None) -> None:
        if isinstance(points, (int, float)) and points:
            points = [[0, value], [points, 0.0]]
        super().__init__(policy, "entropy_coeff", value, points, "entropy_coeff_schedule")


def schedules_of(policy: Any, config: Mapping[str, Any]) -> dict[str, Scheduled]:
    """Returns what follows `lr_schedule` and `entropy_coeff_schedule` of a config."""
    return {
        "lr": LearningRate(policy, config["lr"], config["lr_schedule"]),
        "entropy": EntropyCoefficient(policy, config["entropy_coeff"], config["entropy_coeff_schedule"]),
    }


class AdaptiveKL(Component):
    """A weight of a penalty on the divergence that grows while that is too large, and shrinks while it is small.

    The policy has it as `kl_coeff`, and what it aims at as `kl_target`.

    Args:
        policy: The policy.
        coeff: The weight at the start.
        target: Divergence to aim at, in nats.

    Source: Schulman et al. 2017, "Proximal Policy Optimization Algorithms", section 4.
    """

    def __init__(self, policy: Any, coeff: float, target: float) -> None:
        self._policy, self._initial = policy, float(coeff)
        policy.kl_coeff, policy.kl_target = self._initial, float(target)

    def update(self, sampled_kl: float) -> float:
        """Takes the mean divergence of a train batch, in nats, and returns the new weight."""
        policy = self._policy
        policy.kl_coeff = coeff = adapted_kl_coeff(policy.kl_coeff, policy.kl_target, sampled_kl)
        return coeff

    def get_state(self) -> dict[str, Any]:
        """Returns the weight, and what it was at the start."""
        return {"kl_coeff": self._policy.kl_coeff, "initial": self._initial}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes what `get_state` returned; a weight at the start that the config has changed since begins anew."""
        unchanged = state.get("initial", self._initial) == self._initial
        self._policy.kl_coeff = float(state["kl_coeff"]) if unchanged else self._initial


def adapted_kl_coeff(coeff: float, target: float, sampled_kl: float) -> float:
    """Returns the weight of a penalty on a divergence that was so large: more beyond 2 targets, less below half one."""
    if sampled_kl > 2.0 * target:
        return coeff * 1.5
    return coeff * 0.5 if sampled_kl < 0.5 * target else coeff


def update_kl(policy: Any, sampled_kl: float) -> float:
    """Takes the mean divergence of a train batch, in nats, and returns the KL penalty's new weight.

    A method of policies whose component "kl" is an `AdaptiveKL`.
    """
    coeff: float = policy.components["kl"].update(sampled_kl)
    return coeff
