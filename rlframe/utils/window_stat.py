"""Statistics of the last values of a stream."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np


class WindowStat:
    """Mean, spread and quantiles of the last `n` values.

    Attributes:
        name: Prefix of the keys of `stats()`.
        count: How many values were pushed in all.

    Args:
        name: Prefix of the keys.
        n: How many values are looked back.
    """

    def __init__(self, name: str, n: int) -> None:
        self.name = name
        self.count = 0
        self._items: deque[float] = deque(maxlen=n)

    def push(self, obj: float) -> None:
        """Takes one value."""
        self._items.append(obj)
        self.count += 1

    def mean(self) -> float:
        """Returns the mean; NaN of nothing."""
        return float(np.mean(self._items)) if self._items else float("nan")

    def std(self) -> float:
        """Returns the standard deviation; NaN of nothing."""
        return float(np.std(self._items)) if self._items else float("nan")

    def quantiles(self) -> list[float]:
        """Returns the minimum, the 10th, 50th and 90th percentile and the maximum; `[]` of nothing."""
        return [float(q) for q in np.percentile(self._items, [0, 10, 50, 90, 100])] if self._items else []

    def stats(self) -> dict[str, Any]:
        """Returns `{<name>_count, <name>_mean, <name>_std, <name>_quantiles}`."""
        return {
            f"{self.name}_count": self.count,
            f"{self.name}_mean": self.mean(),
            f"{self.name}_std": self.std(),
            f"{self.name}_quantiles": self.quantiles(),
        }
