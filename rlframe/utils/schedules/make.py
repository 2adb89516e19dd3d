"""Schedules made of what users write where one is wanted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlframe.utils.errors import ConfigError
from rlframe.utils.from_config import from_config
from rlframe.utils.schedules.constant_schedule import ConstantSchedule
from rlframe.utils.schedules.schedule import PiecewiseSchedule, Schedule


def make_schedule(spec: Any) -> Schedule | None:
    """Returns a schedule for what users write where one is wanted.

    Args:
        spec: A schedule (or any function of the time step); a number, for a constant; a list of `[time step, value]`,
            for straight lines between them; a dict with `type`, or a type's name, for `from_config`; None.

    Returns:
        The schedule; None for None.

    Raises:
        ConfigError: If `spec` is none of these.
    """
    if spec is None or isinstance(spec, Schedule):
        return spec
    if isinstance(spec, (int, float)):
        return ConstantSchedule(spec)
    if isinstance(spec, (list, tuple)):
        endpoints = [(point[0], point[1]) for point in spec]
        return PiecewiseSchedule(endpoints, outside_value=endpoints[-1][1])
    if callable(spec) and not isinstance(spec, type):
        return FunctionSchedule(spec)
    if isinstance(spec, (Mapping, str, type)):
        return from_config(Schedule, spec)  # type: ignore[type-abstract]  # with a type, it is a subclass
    raise ConfigError(
        f"A schedule is {spec!r}; wanted a Schedule, a number, a list of [step, value], or a type's dict."
    )


class FunctionSchedule(Schedule):
    """A function of the time step as a schedule.

    Args:
        function: Takes a time step and returns the value.
    """

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def _value(self, t: float) -> Any:
        return self.function(t)
