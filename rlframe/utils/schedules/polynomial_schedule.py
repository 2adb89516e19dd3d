"""A schedule that falls (or rises) by a power of the time left."""

from __future__ import annotations

from rlframe.utils.schedules.schedule import Schedule, check_timesteps


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
        self.schedule_timesteps = check_timesteps(self, schedule_timesteps)
        self.final_p = final_p
        self.initial_p = initial_p
        self.power = power

    def _value(self, t: float) -> float:
        left = 1.0 - min(max(t, 0), self.schedule_timesteps) / self.schedule_timesteps
        return float(self.final_p + (self.initial_p - self.final_p) * left**self.power)
