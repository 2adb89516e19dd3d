"""Pieces of RLlib's ES and ARS for programs that search weights in a loop of their own; trainers do not use them.

Source: Salimans et al. 2017, "Evolution Strategies as a Scalable Alternative to Reinforcement Learning".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.execution.actor_tasks import in_object_store

Vector = NDArray[np.float32]

#: Numbers of a table that programs share by Ray: 1 GB.
TABLE_SIZE = 250_000_000


def create_shared_noise(count: int = TABLE_SIZE) -> Vector:
    """Returns standard normal numbers, float32 `[count]`, the same with each call.

    `create_shared_noise.remote(count)` puts them into Ray's object store, where all actors see them.
    """
    return np.random.default_rng(123).standard_normal(count, dtype=np.float32)


def _put_shared_noise(count: int = TABLE_SIZE) -> Any:
    """Returns a reference of Ray's to the numbers."""
    return in_object_store(create_shared_noise(count))


create_shared_noise.remote = _put_shared_noise  # type: ignore[attr-defined]


class SharedNoiseTable:
    """Pieces of a table of noise.

    Args:
        noise: Float32 `[N]`.
    """

    def __init__(self, noise: Vector) -> None:
        if noise.dtype != np.float32:
            raise TypeError(f"SharedNoiseTable: got noise of {noise.dtype}; wanted float32: noise.astype(np.float32)")
        self.noise = noise

    def get(self, i: int, dim: int) -> Vector:
        """Returns `dim` numbers from place `i` on, a view."""
        return self.noise[i : i + dim]

    def sample_index(self, dim: int) -> int:
        """Returns a place, uniform by NumPy's global stream, that `dim` numbers follow."""
        return int(np.random.randint(0, len(self.noise) - dim + 1))  # noqa: NPY002 - programs seed the global stream

    def get_delta(self, dim: int) -> tuple[int, Vector]:
        """Returns a place as `sample_index` draws it, and the `dim` numbers from there on."""
        place = self.sample_index(dim)
        return place, self.get(place, dim)


def compute_ranks(x: NDArray[Any]) -> NDArray[np.int64]:
    """Returns the place of each number `[N]` among all, integers from 0, the least number's."""
    if x.ndim != 1:
        raise ValueError(f"compute_ranks: got shape {x.shape}; wanted one axis: x.ravel()")
    return x.argsort().argsort()


def itergroups(items: Iterable[Any], group_size: int) -> Iterator[tuple[Any, ...]]:
    """Yields items in tuples of `group_size`; the last has what is left."""
    if group_size < 1:
        raise ValueError(f"itergroups: got group_size={group_size}; wanted 1 or more")
    rest = iter(items)
    while group := tuple(islice(rest, group_size)):
        yield group


def batched_weighted_sum(weights: Iterable[float], vecs: Iterable[Vector], batch_size: int) -> tuple[Any, int]:
    """Returns Σ w v, float32 `[dim]`, and how many were summed, `batch_size` at a time; 0 of none."""
    total: Any = 0
    count = 0
    for some, vectors in zip(itergroups(weights, batch_size), itergroups(vecs, batch_size), strict=True):
        total = total + np.asarray(some, np.float32) @ np.asarray(vectors, np.float32)
        count += len(some)
    return total, count


class Optimizer:
    """Steps a policy's flat weights downhill.

    Args:
        policy: Has `num_params` and `get_flat_weights()`, float `[num_params]`.
    """

    def __init__(self, policy: Any) -> None:
        self.policy, self.dim, self.t = policy, policy.num_params, 0

    def update(self, globalg: Vector) -> tuple[Vector, float]:
        """Returns the weights after a step, and the step's length over theirs.

        Args:
            globalg: The gradient `[num_params]`.
        """
        self.t += 1
        step = self._compute_step(globalg)
        weights = self.policy.get_flat_weights()
        moved: Vector = weights + step
        return moved, float(np.linalg.norm(step) / np.linalg.norm(weights))

    def _compute_step(self, globalg: Vector) -> Vector:
        raise NotImplementedError(f"{type(self).__name__} has no _compute_step(globalg), which returns the step")


class SGD(Optimizer):
    """Steps along an average of gradients that forgets the older ones."""

    def __init__(self, policy: Any, stepsize: float, momentum: float = 0.0) -> None:
        super().__init__(policy)
        self.stepsize, self.momentum = stepsize, momentum
        self.v: Vector = np.zeros(self.dim, np.float32)

    def _compute_step(self, globalg: Vector) -> Vector:
        self.v = self.momentum * self.v + (1.0 - self.momentum) * globalg
        step: Vector = -self.stepsize * self.v
        return step


class Adam(Optimizer):
    """Adam, see Kingma and Ba 2015, algorithm 1, with ε beside the uncorrected moment."""

    def __init__(
        self, policy: Any, stepsize: float, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8
    ) -> None:
        super().__init__(policy)
        self.stepsize, self.beta1, self.beta2, self.epsilon = stepsize, beta1, beta2, epsilon
        self.m: Vector = np.zeros(self.dim, np.float32)
        self.v: Vector = np.zeros(self.dim, np.float32)

    def _compute_step(self, globalg: Vector) -> Vector:
        self.m = self.beta1 * self.m + (1 - self.beta1) * globalg
        self.v = self.beta2 * self.v + (1 - self.beta2) * globalg**2
        rate = self.stepsize * np.sqrt(1 - self.beta2**self.t) / (1 - self.beta1**self.t)
        step: Vector = -rate * self.m / (np.sqrt(self.v) + self.epsilon)
        return step
