"""The schedule of what does not change."""

from __future__ import annotations

from rlframe.utils.schedules.schedule import Schedule


class ConstantSchedule(Schedule):
    """Always the same value.

    Args:
        value: The value.
        framework: Accepted and not needed.
    """

    def __init__(self, value: float, framework: str | None = None) -> None:
        super().__init__(framework)
        self._v = value

    def _value(self, t: float) -> float:  # noqa: ARG002 (the same at every step)
        return self._v
