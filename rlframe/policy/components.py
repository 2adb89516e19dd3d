"""Parts of policies with a state of their own, and the learning rate as one: a number that follows a schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from rlframe.data.sample_batch import SampleBatch
from rlframe.utils.schedules.constant_schedule import ConstantSchedule
from rlframe.utils.schedules.schedule import PiecewiseSchedule


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

    def ready(self) -> None:
        """Called once, when the policy is built."""

    def on_timestep(self, timestep: int) -> None:
        """Takes the count of env steps."""

    def before_learning(self, samples: SampleBatch) -> None:
        """Takes a batch, in arrays, before gradients are computed of it."""

    def after_learning(self, samples: SampleBatch, stats: dict[str, Any]) -> None:
        """Takes a batch, in arrays, that a learner step was done on, and the step's statistics, to which it may add."""

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

    The policy has the schedule, too, under RLlib's name: programs put others in its place. Without one the number
    is what programs set it to.

    Args:
        policy: The policy.
        name: Name of the attribute.
        value: Its value where there is no schedule.
        points: `[[env step, value], ...]`, linear between them, from step 0 on; None keeps it.
        schedule: Name of the schedule's attribute.
    """

    def __init__(self, policy: Any, name: str, value: float, points: Any, schedule: str) -> None:
        self._policy, self._name, self._schedule = policy, name, schedule
        made = schedule_of(value, points)
        self._none = None if points else made
        setattr(policy, schedule, made)
        setattr(policy, name, float(made.value(0)))

    def on_timestep(self, timestep: int) -> None:
        """Sets the attribute to the schedule's value at a count of env steps, where there is a schedule."""
        schedule = getattr(self._policy, self._schedule)
        if schedule is not self._none:
            setattr(self._policy, self._name, float(schedule.value(timestep)))


class LearningRate(Scheduled):
    """The learning rate of all of a policy's optimisers, `cur_lr` by `lr_schedule`; see `Scheduled`."""

    def __init__(self, policy: Any, value: float, points: Any = None) -> None:
        super().__init__(policy, "cur_lr", value, points, "lr_schedule")
        self._follows = bool(points)

    def ready(self) -> None:
        """Sets every optimiser's rate to what the schedule begins with; without one they keep theirs."""
        if self._follows:
            self._policy.set_learning_rate(self._policy.cur_lr)

    def on_timestep(self, timestep: int) -> None:
        """Sets every optimiser's rate to the schedule's value at a count of env steps."""
        super().on_timestep(timestep)
        self._policy.set_learning_rate(self._policy.cur_lr)


def schedule_of(constant: float, points: Sequence[Sequence[float]] | None) -> Any:
    """Returns the schedule through `[[env step, value], ...]`, linear between them; a constant for None."""
    if not points:
        return ConstantSchedule(constant)
    pairs = [(int(step), float(value)) for step, value in points]
    return PiecewiseSchedule(pairs, outside_value=pairs[-1][1])
