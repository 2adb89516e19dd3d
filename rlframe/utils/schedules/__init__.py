"""Schedules: values that change with the time step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.utils.lazy import import_name

if TYPE_CHECKING:
    from rlframe.utils.schedules.constant_schedule import ConstantSchedule
    from rlframe.utils.schedules.decays import ExponentialSchedule, LinearSchedule, PolynomialSchedule
    from rlframe.utils.schedules.make import make_schedule
    from rlframe.utils.schedules.schedule import PiecewiseSchedule, Schedule

_NAMES = {
    "ConstantSchedule": "rlframe.utils.schedules.constant_schedule",
    "ExponentialSchedule": "rlframe.utils.schedules.decays",
    "LinearSchedule": "rlframe.utils.schedules.decays",
    "PiecewiseSchedule": "rlframe.utils.schedules.schedule",
    "PolynomialSchedule": "rlframe.utils.schedules.decays",
    "Schedule": "rlframe.utils.schedules.schedule",
    "make_schedule": "rlframe.utils.schedules.make",
}

__all__ = [
    "ConstantSchedule",
    "ExponentialSchedule",
    "LinearSchedule",
    "PiecewiseSchedule",
    "PolynomialSchedule",
    "Schedule",
    "make_schedule",
]


def __getattr__(name: str) -> Any:
    return import_name(__name__, _NAMES, name)
