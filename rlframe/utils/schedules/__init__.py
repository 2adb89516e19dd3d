"""Schedules: values that change with the time step."""

from rlframe.utils.schedules.constant_schedule import ConstantSchedule
from rlframe.utils.schedules.exponential_schedule import ExponentialSchedule
from rlframe.utils.schedules.linear_schedule import LinearSchedule
from rlframe.utils.schedules.make import make_schedule
from rlframe.utils.schedules.piecewise_schedule import PiecewiseSchedule
from rlframe.utils.schedules.polynomial_schedule import PolynomialSchedule
from rlframe.utils.schedules.schedule import Schedule

__all__ = [
    "ConstantSchedule",
    "ExponentialSchedule",
    "LinearSchedule",
    "PiecewiseSchedule",
    "PolynomialSchedule",
    "Schedule",
    "make_schedule",
]
