"""What every schedule is: a value for each time step."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlframe.utils.errors import ConfigError

_NUMBERS: Any = (int, float, np.number)


class Schedule:
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
            t: A time step; or an array or tensor of them.

        Returns:
            A number; or an array or torch tensor like `t`, float32, without gradients.
        """
        return self._value(t) if isinstance(t, _NUMBERS) else self._values(t)

    def __call__(self, t: Any) -> Any:
        """Returns `value(t)`."""
        return self._value(t) if isinstance(t, _NUMBERS) else self._values(t)

    def _value(self, t: float) -> Any:
        """Returns the value at one time step."""
        raise NotImplementedError(f"{type(self).__name__} must define _value(t).")

    def _values(self, t: Any) -> Any:
        is_torch = hasattr(t, "detach")
        steps = t.detach().cpu().numpy() if is_torch else np.asarray(t.numpy() if hasattr(t, "numpy") else t)
        values = [self._value(step) for step in steps.ravel().tolist()]
        array = np.asarray(values, np.float32).reshape(steps.shape)
        if is_torch:
            # `new_tensor` keeps the device, `float` first the type: time steps are often integers.
            return t.detach().float().new_tensor(array.tolist())
        return array if steps.ndim else array[()]


def check_timesteps(owner: Schedule, timesteps: float) -> float:
    """Returns the length of a schedule, checked.

    Raises:
        ConfigError: If it is not a number above 0.
    """
    if not isinstance(timesteps, (int, float)) or not timesteps > 0 or math.isinf(timesteps):
        raise ConfigError(f"{type(owner).__name__}: schedule_timesteps is {timesteps!r}; wanted a number above 0.")
    return timesteps
