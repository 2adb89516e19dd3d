"""Parts of policies with a state of their own: numbers that follow a schedule, a penalty whose weight adapts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.sample_batch import SampleBatch
from rlframe.utils.schedules.schedule import ConstantSchedule, PiecewiseSchedule


class Component:
    """A part of a policy with a state, or a place in its learner step; `Policy.components` holds them by name.

    What a part does not override does nothing.
    """

    def get_state(self) -> dict[str, Any]:
        """Returns the state: nested dicts of arrays and numbers."""
        return {}

    def check_state(self, state: Mapping[str, Any] | None) -> None:
        """Raises a CheckpointError where a state cannot be taken; called before anything of a checkpoint is.

        Args:
            state: What `get_state` returned, None where the checkpoint has nothing of this part.
        """

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes what `get_state` returned."""

    def on_timestep(self, timestep: int) -> None:
        """Takes the count of env steps."""

    def before_learning(self, samples: SampleBatch) -> None:
        """Takes a batch, in arrays, before gradients are computed of it."""

    def after_learning(self, samples: SampleBatch, stats: Mapping[str, Any]) -> None:
        """Takes a batch, in arrays, that a learner step was done on, and the step's statistics."""

    def extra_weights(self) -> dict[str, NDArray[Any]]:
        """Returns arrays that belong to the policy's weights and are not the network's, by name."""
        return {}

    def without_extra(self, weights: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns weights but for those that `extra_weights` names; raises a ValueError where they cannot be taken."""
        return weights

    def take_extra(self, weights: Mapping[str, Any]) -> None:
        """Takes its own of the policy's weights; called when the network has the others."""


class Scheduled(Component):
    """A number that follows the count of env steps, as an attribute of the policy.

    The policy has the schedule, too, under RLlib's name: programs put others in its place.

    Args:
        policy: The policy.
        name: Name of the attribute.
        value: Its value at the start.
        points: `[[env step, value], ...]`, linear between them; None keeps it.
        schedule: Name of the schedule's attribute.
    """

    def __init__(self, policy: Any, name: str, value: float, points: Any, schedule: str) -> None:
        self._policy, self._name, self._schedule = policy, name, schedule
        setattr(policy, schedule, schedule_of(value, points))
        setattr(policy, name, float(value))

    def on_timestep(self, timestep: int) -> None:
        """Sets the attribute to the schedule's value at a count of env steps."""
        setattr(self._policy, self._name, float(getattr(self._policy, self._schedule).value(timestep)))


class LearningRate(Scheduled):
    """The learning rate of all of a policy's optimisers, `cur_lr` by `lr_schedule`; see `Scheduled`."""

    def __init__(self, policy: Any, value: float, points: Any = None) -> None:
        super().__init__(policy, "cur_lr", value, points, "lr_schedule")

    def on_timestep(self, timestep: int) -> None:
        """Sets every optimiser's rate to the schedule's value at a count of env steps."""
        super().on_timestep(timestep)
        self._policy.set_learning_rate(self._policy.cur_lr)


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


class RandomStream(Component):
    """A random stream of a policy's own, in NumPy, which its state has.

    Args:
        generator: The stream.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self.generator = generator

    def get_state(self) -> dict[str, Any]:
        """Returns where the stream is."""
        return {"rng": self.generator.bit_generator.state}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes what `get_state` returned."""
        self.generator.bit_generator.state = state["rng"]


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
        self._policy = policy
        policy.kl_coeff, policy.kl_target = float(coeff), float(target)

    def update(self, sampled_kl: float) -> float:
        """Takes the mean divergence of a train batch, in nats, and returns the new weight."""
        policy = self._policy
        policy.kl_coeff = coeff = adapted_kl_coeff(policy.kl_coeff, policy.kl_target, sampled_kl)
        return coeff

    def get_state(self) -> dict[str, Any]:
        """Returns the weight."""
        return {"kl_coeff": self._policy.kl_coeff}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes what `get_state` returned."""
        self._policy.kl_coeff = float(state["kl_coeff"])


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


def schedule_of(constant: float, points: Sequence[Sequence[float]] | None) -> Any:
    """Returns the schedule through `[[env step, value], ...]`, linear between them; a constant for None."""
    if not points:
        return ConstantSchedule(constant)
    pairs = [(int(step), float(value)) for step, value in points]
    return PiecewiseSchedule(pairs, outside_value=pairs[-1][1])
