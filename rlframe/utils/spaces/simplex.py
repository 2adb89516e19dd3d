"""A space of vectors of shares that sum to one."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rlframe.utils.spaces.old_gym import class_known_to_both

# How far a sum may be from 1: float32 rounding over some thousand shares.
_TOLERANCE = 1e-5


class Simplex(spaces.Space[Any]):
    """Arrays whose last dimension holds shares: not negative, and summing to 1.

    Attributes:
        dim: How many shares there are, the last dimension of the shape.
        concentration: The parameters of the Dirichlet distribution that samples are drawn from, `[dim]`.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG004 - those of __init__
        """Makes it a space of the old gym as well, where the program has imported that: its Dict takes no other."""
        return super().__new__(class_known_to_both(cls))

    def __init__(self, shape: tuple[int, ...], concentration: Any = None, dtype: Any = np.float32) -> None:
        """Makes the space; samples are uniform over it unless a concentration is given.

        Args:
            shape: The shape of a member; its last entry is the number of shares.
            concentration: Positive parameters of the sampling distribution, `[shape[-1]]`.
            dtype: The float type of members.

        Raises:
            ValueError: If the concentration has another length.
        """
        super().__init__(tuple(shape), dtype)
        self.dim = int(shape[-1])
        self.concentration: NDArray[Any] = np.ones(self.dim) if concentration is None else np.asarray(concentration)
        if self.concentration.shape != (self.dim,):
            raise ValueError(
                f"Simplex: the concentration has shape {self.concentration.shape}; wanted ({self.dim},) for the "
                f"shape {tuple(shape)}."
            )

    @property
    def is_np_flattenable(self) -> bool:
        """True: a member is one array."""
        return True

    def sample(self, mask: Any = None, probability: Any = None) -> NDArray[Any]:  # noqa: ARG002 (Gymnasium's signature)
        """Returns a random member; masks are not supported and ignored."""
        assert self.shape is not None
        return self.np_random.dirichlet(self.concentration, size=self.shape[:-1]).astype(self.dtype)

    def contains(self, x: Any) -> bool:
        """Tells whether `x` has the shape, no negative entry, and sums to 1 along its last dimension."""
        array = np.asarray(x)
        if array.shape != self.shape or array.dtype.kind != "f":
            return False
        return bool((array >= 0).all() and np.allclose(array.sum(axis=-1), 1.0, rtol=0.0, atol=_TOLERANCE))

    def __eq__(self, other: object) -> bool:
        """Compares shape and concentration."""
        return (
            isinstance(other, Simplex)
            and self.shape == other.shape
            and np.array_equal(self.concentration, other.concentration)
        )

    __hash__ = None  # type: ignore[assignment]  # mutable, like every Gymnasium space

    def __repr__(self) -> str:
        """Shows shape and concentration."""
        return f"Simplex({self.shape}, {self.concentration.tolist()})"
