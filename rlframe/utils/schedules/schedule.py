"""Schedules: a value for each time step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlframe.utils.errors import ConfigError

_NUMBERS: Any = (int, float, np.number)


class Schedule(ABC):
    """A value that changes with the time step; subclasses define `_value` for one time step.

    Attributes:
        framework: As given; results do not depend on it.

    Args:
        framework: Accepted because RLlib wants it; a schedule computes in plain numbers.
    """

    def __init__(self, framework: str | None = None) -> None:
        self.framework = framework

    def value(self, t: Any) -> Any:
        """Returns the value at `t`.

        Args:
            t: A time step; or an array or tensor of them; or what else the `_value` of a program's own takes.

        Returns:
            A number; or an array or torch tensor like `t`, float32, without gradients.
        """
        return self._value(t) if isinstance(t, _NUMBERS) or not hasattr(t, "shape") else self._values(t)

    def __call__(self, t: Any) -> Any:
        """Returns `value(t)`."""
        return self._value(t) if isinstance(t, _NUMBERS) or not hasattr(t, "shape") else self._values(t)

    @abstractmethod
    def _value(self, t: float) -> Any:
        """Returns the value at one time step."""

    def _tf_value_op(self, t: Any) -> Any:
        """Returns `value(t)`; schedules of one's own override it for RLlib's TensorFlow, nothing here calls it."""
        return self.value(t)

    def _values(self, t: Any) -> Any:
        is_torch = hasattr(t, "detach")
        steps = t.detach().cpu().numpy() if is_torch else np.asarray(t.numpy() if hasattr(t, "numpy") else t)
        values = [self._value(step) for step in steps.ravel().tolist()]
        array = np.asarray(values, np.float32).reshape(steps.shape)
        if is_torch:
            # `new_tensor` keeps the device, `float` first the type: time steps are often integers.
            return t.detach().float().new_tensor(array.tolist())
        return array if steps.ndim else array[()]


def linear_interpolation(left: float, right: float, alpha: float) -> float:
    """Returns the point that divides the line from `left` to `right` at the share `alpha`."""
    return left + alpha * (right - left)


class PiecewiseSchedule(Schedule):
    """Interpolates between points.

    Args:
        endpoints: `(time step, value)` pairs with growing time steps. Of two points at one time step the later one
            counts from there on, which makes a jump.
        framework: Accepted and not needed.
        interpolation: `fn(left value, right value, share of the way)`.
        outside_value: The value before the first and from the last point on. None makes these time steps an error,
            but for the last point itself.

    Raises:
        ConfigError: If there is no point, or time steps do not grow.
    """

    def __init__(
        self,
        endpoints: Sequence[tuple[float, float]],
        framework: str | None = None,
        interpolation: Callable[[float, float, float], float] = linear_interpolation,
        outside_value: float | None = None,
    ) -> None:
        super().__init__(framework)
        points = [(point[0], float(point[1])) for point in endpoints]
        self._times = [time for time, _ in points]
        if not points or sorted(self._times) != self._times:
            raise ConfigError(
                f"PiecewiseSchedule: endpoints are {points}; wanted at least one, with growing time steps."
            )
        self.endpoints = points
        self.interpolation = interpolation
        self.outside_value = outside_value

    def _value(self, t: float) -> float:
        times = self._times
        index = bisect_right(times, t)
        if 0 < index < len(times):
            (left_t, left), (right_t, right) = self.endpoints[index - 1 : index + 1]
            return self.interpolation(left, right, (t - left_t) / (right_t - left_t))
        if self.outside_value is not None:
            return self.outside_value
        if t == times[-1]:
            return self.endpoints[-1][1]
        raise ValueError(
            f"PiecewiseSchedule has no value at time step {t}: its points reach from {times[0]} to {times[-1]}; "
            f"give outside_value for the rest."
        )
