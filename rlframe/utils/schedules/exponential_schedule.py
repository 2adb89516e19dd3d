"""A schedule that falls by the same factor in equal times."""

from __future__ import annotations

from rlframe.utils.schedules.schedule import Schedule, check_timesteps


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
        self.schedule_timesteps = check_timesteps(self, schedule_timesteps)
        self.initial_p = initial_p
        self.decay_rate = decay_rate

    def _value(self, t: float) -> float:
        return float(self.initial_p * self.decay_rate ** (t / self.schedule_timesteps))
