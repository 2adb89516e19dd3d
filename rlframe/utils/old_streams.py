"""NumPy's random generator with the methods of the `RandomState` that environments drew from before gym 0.26."""

from __future__ import annotations

from typing import Any

import numpy as np


class OldNamesGenerator(np.random.Generator):
    """A `numpy.random.Generator` that answers to `RandomState`'s names, too; what it draws is the generator's own."""

    def randint(self, low: Any, high: Any = None, size: Any = None, dtype: Any = int) -> Any:
        """Returns whole numbers in [low, high), or in [0, low)."""
        drawn = self.integers(low, high, size, dtype=dtype)
        return int(drawn) if size is None and dtype is int and np.ndim(drawn) == 0 else drawn

    def rand(self, *shape: int) -> Any:
        """Returns floats in [0, 1): an array of this shape, or a number without one."""
        return self.random(shape or None)

    def randn(self, *shape: int) -> Any:
        """Returns floats of the standard normal distribution: an array of this shape, or a number without one."""
        return self.standard_normal(shape or None)

    def random_sample(self, size: Any = None) -> Any:
        """Returns floats in [0, 1)."""
        return self.random(size)

    def __reduce__(self) -> Any:
        """Copies and pickled streams keep these names, and go on where this one is."""
        return type(self), (self.bit_generator,)
