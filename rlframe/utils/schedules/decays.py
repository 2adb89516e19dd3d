"""Schedules that decay to, or towards, a final value: polynomials, lines, exponentials."""

from __future__ import annotations

import math

from rlframe.utils.errors import ConfigError
from rlframe.utils.schedules.schedule import Schedule


class PolynomialSchedule(Schedule):
    """final + (initial − final) · (1 − t/T)^power, and the final value from T on.

    Args:
        schedule_timesteps: T, when the final value is reached.
        final_p: The final value.
        framework: Accepted and not needed.
        initial_p: The value at 0.
        power: 1 is a straight line.

    Raises:
        ConfigError: If T is not above 0.
    """

    def __init__(
        self,
        schedule_timesteps: float,
        final_p: float,
        framework: str | None = None,
        initial_p: float = 1.0,
        power: float = 2.0,
    ) -> None:
        super().__init__(framework)
        self.schedule_timesteps = _check_timesteps(self, schedule_timesteps)
        self.final_p = final_p
        self.initial_p = initial_p
        self.power = power

    def _value(self, t: float) -> float:
        left = 1.0 - min(max(t, 0), self.schedule_timesteps) / self.schedule_timesteps
        return float(self.final_p + (self.initial_p - self.final_p) * left**self.power)


class LinearSchedule(PolynomialSchedule):
    """From the initial value at 0 straight to the final value at T, which then stays.

    Args:
        schedule_timesteps: T, when the final value is reached.
        final_p: The final value.
        framework: Accepted and not needed.
        initial_p: The value at 0.

    Raises:
        ConfigError: If T is not above 0.
    """

    def __init__(
        self, schedule_timesteps: float, final_p: float, framework: str | None = None, initial_p: float = 1.0
    ) -> None:
        super().__init__(schedule_timesteps, final_p, framework, initial_p, power=1.0)


class ExponentialSchedule(Schedule):
    """initial · rate^(t/T); goes on falling after T.

    Args:
        schedule_timesteps: T, the time in which the value falls by the rate.
        framework: Accepted and not needed.
        initial_p: The value at 0.
        decay_rate: The factor.

    Raises:
        ConfigError: If T is not above 0.
    """

    def __init__(
        self,
        schedule_timesteps: float,
        framework: str | None = None,
        initial_p: float = 1.0,
        decay_rate: float = 0.1,
    ) -> None:
        super().__init__(framework)
        self.schedule_timesteps = _check_timesteps(self, schedule_timesteps)
        self.initial_p = initial_p
        self.decay_rate = decay_rate

    def _value(self, t: float) -> float:
        return float(self.initial_p * self.decay_rate ** (t / self.schedule_timesteps))


def _check_timesteps(owner: Schedule, timesteps: float) -> float:
    """Returns the length of a schedule, checked.

    Raises:
        ConfigError: If it is not a number above 0.
    """
    if not isinstance(timesteps, (int, float)) or not timesteps > 0 or math.isinf(timesteps):
        raise ConfigError(f"{type(owner).__name__}: schedule_timesteps is {timesteps!r}; wanted a number above 0.")
    return timesteps
