"""A schedule that falls (or rises) along a straight line."""

from __future__ import annotations

from rlframe.utils.schedules.polynomial_schedule import PolynomialSchedule


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
