"""Observation filters: running normalisation whose statistics can be merged between workers.

A worker's filter keeps two sets of statistics: `rs`, everything it knows, and `buffer`, what it saw itself since the
buffer was last cleared. The driver merges the workers' buffers into its own `rs` (`apply_changes`) and sends that back
(`sync`), so every observation is counted exactly once.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.utils.errors import CheckpointError, ConfigError, NonFiniteError

Array = NDArray[Any]
State = dict[str, Any]

_EPSILON = 1e-8


class Filter:
    """What the sampler and the synchronisation ask of a filter."""

    is_concurrent = False

    def __call__(self, x: Any, update: bool = True) -> Any:
        """Returns the filtered observation; with `update`, learns from it first."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__().")

    def filter_batch(self, x: Any, update: bool = True) -> Any:
        """Returns B filtered observations `[B, *shape]`, as if they had been given one after the other."""
        return np.stack([np.asarray(self(row, update)) for row in x])

    def apply_changes(self, other: Any, *args: Any, **kwargs: Any) -> None:
        """Merges what `other` saw itself."""

    def copy(self) -> Filter:
        """Returns an independent copy."""
        return copy.deepcopy(self)

    def sync(self, other: Any) -> None:
        """Takes over everything from `other`."""

    def clear_buffer(self) -> None:
        """Forgets what this filter saw itself, not what it knows."""

    reset_buffer = clear_buffer

    def as_serializable(self) -> Filter:
        """Returns a copy that can be sent to another process."""
        return self.copy()

    def get_state(self) -> State:
        """Returns the state as a dict of arrays and plain values."""
        return {"type": type(self).__name__}

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` returned."""


class NoFilter(Filter):
    """Lets observations pass."""

    is_concurrent = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Takes the arguments of the other filters and needs none."""

    def __call__(self, x: Any, update: bool = True) -> Any:  # noqa: ARG002
        """Returns `x`."""
        return x

    def filter_batch(self, x: Any, update: bool = True) -> Any:  # noqa: ARG002
        """Returns `x`."""
        return x


class RunningStat:
    """Count, mean and spread of a stream, per dimension, in float64; Welford's update, Chan's merge.

    Attributes:
        n: How many observations were counted.
    """

    n: int = 0

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        """Begins with nothing counted."""
        self.n = 0
        self._mean: Array = np.zeros(shape)
        self._m2: Array = np.zeros(shape)  # sum of squared deviations from the mean

    @classmethod
    def of(cls, x: Array) -> RunningStat:
        """Returns the statistics of B observations, float64 `[B, *shape]`, B >= 1."""
        stat = cls(x.shape[1:])
        stat.n = len(x)
        stat._mean = x.sum(axis=0) / len(x)
        stat._m2 = np.square(x - stat._mean).sum(axis=0)
        return stat

    def push(self, x: Any) -> None:
        """Counts one observation, float `[*shape]`.

        Raises:
            ValueError: If it is of another shape.
        """
        x = np.asarray(x, np.float64)
        if x.shape != self._mean.shape:
            raise ValueError(f"Got an observation of shape {x.shape} to count; wanted {self.shape}.")
        self.n += 1
        delta = x - self._mean
        self._mean = self._mean + delta / self.n
        self._m2 = self._m2 + delta * (x - self._mean)

    def update(self, other: RunningStat) -> None:
        """Counts all that `other` counted."""
        if other.n == 0:
            return
        total = self.n + other.n
        delta = other._mean - self._mean
        self._mean = self._mean + delta * (other.n / total)
        self._m2 = self._m2 + other._m2 + np.square(delta) * (self.n * other.n / total)
        self.n = total

    def push_batch(self, x: Array) -> tuple[Array, Array]:
        """Counts B observations in their order.

        Args:
            x: Float64 `[B, *shape]`, B >= 1.

        Returns:
            Mean and standard deviation as they were after each observation, both float64 `[B, *shape]`.
        """
        # Sums of deviations are taken from a value near the data, because sums of squares of the data themselves
        # lose all digits where the mean is large against the spread.
        shift = self._mean if self.n else x[0]
        deviation = x - shift
        counts = (self.n + np.arange(1, len(x) + 1)).reshape(-1, *[1] * (x.ndim - 1))
        sums = deviation.cumsum(axis=0)
        means = sums / counts
        m2 = np.maximum(self._m2 + np.square(deviation).cumsum(axis=0) - sums * means, 0.0)
        means += shift
        variances = m2 / np.maximum(counts - 1, 1)
        if self.n == 0:
            variances[0] = np.square(means[0])
        self.n += len(x)
        self._mean, self._m2 = means[-1].copy(), m2[-1].copy()
        return means, np.sqrt(variances)

    def copy(self) -> RunningStat:
        """Returns an independent copy."""
        other = RunningStat(self.shape)
        other.n, other._mean, other._m2 = self.n, self._mean.copy(), self._m2.copy()
        return other

    @property
    def mean(self) -> Array:
        """The mean, zeros before the first observation."""
        return self._mean

    @property
    def var(self) -> Array:
        """The unbiased variance; of a single observation, its square, so that it is normalised by its own size."""
        return self._m2 / (self.n - 1) if self.n > 1 else np.square(self._mean)

    @property
    def std(self) -> Array:
        """The square root of `var`."""
        return np.sqrt(self.var)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one observation."""
        return tuple(self._mean.shape)

    def get_state(self) -> State:
        """Returns count, mean and sum of squared deviations."""
        return {"n": self.n, "mean": self._mean.copy(), "m2": self._m2.copy()}

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` returned.

        Raises:
            CheckpointError: If it is of another shape.
        """
        mean, m2 = (np.array(state[key], np.float64) for key in ("mean", "m2"))
        if mean.shape != self.shape or m2.shape != self.shape:
            raise CheckpointError(
                f"Filter state of observations of shape {mean.shape}; wanted {self.shape}. It was saved with another "
                "observation space or preprocessor."
            )
        self.n, self._mean, self._m2 = int(state["n"]), mean, m2

    def __repr__(self) -> str:
        """Shows count, mean and spread."""
        return f"RunningStat(n={self.n}, mean={self.mean}, std={self.std})"


class MeanStdFilter(Filter):
    """Subtracts the running mean and divides by the running standard deviation: (x - mean) / (std + 1e-8).

    Before anything was counted, observations pass unchanged.

    Attributes:
        shape: The shape of an observation.
        rs: The statistics that normalise.
        buffer: The statistics of what was seen since the buffer was cleared, to be merged elsewhere.
        learns: Whether `update` counts anything; evaluation workers judge by the statistics of training.
    """

    learns = True

    def __init__(
        self, shape: tuple[int, ...], demean: bool = True, destd: bool = True, clip: float | None = 10.0
    ) -> None:
        """Makes a filter that has seen nothing.

        Args:
            shape: The shape of an observation.
            demean: Whether to subtract the mean.
            destd: Whether to divide by the standard deviation.
            clip: Results are clipped to [-clip, clip]; None for not at all.
        """
        self.shape = tuple(shape)
        self.demean = demean
        self.destd = destd
        self.clip = clip
        self.rs = RunningStat(self.shape)
        self.buffer = RunningStat(self.shape)

    def __call__(self, x: Any, update: bool = True) -> Array:
        """Returns the normalised observation, float32 `[*shape]`; with `update`, counts it first.

        Several at once, `[B, *shape]`, are all counted before the first is normalised.
        """
        x = np.asarray(x, np.float64)
        if update:
            self._require_finite(x)
        if update and self.learns and x.ndim == len(self.shape) + 1:
            self._require_shape(x)
            seen = RunningStat.of(x) if len(x) else RunningStat(self.shape)
            self.rs.update(seen)
            self.buffer.update(seen)
        elif update and self.learns:
            self.rs.push(x)
            self.buffer.push(x)
        return self._normalize(x, self.rs.mean, self.rs.std) if self.rs.n else x.astype(np.float32)

    def filter_batch(self, x: Any, update: bool = True) -> Array:
        """Returns B normalised observations, float32 `[B, *shape]`, the same as one call for each in turn."""
        x = np.asarray(x, np.float64)
        if update:
            self._require_finite(x)
        if update and self.learns and len(x):
            self._require_shape(x)
            self.buffer.update(RunningStat.of(x))
            return self._normalize(x, *self.rs.push_batch(x))
        return self._normalize(x, self.rs.mean, self.rs.std) if self.rs.n else x.astype(np.float32)

    def _normalize(self, x: Array, mean: Array, std: Array) -> Array:
        if self.demean:
            x = x - mean
        if self.destd:
            x = x / (std + _EPSILON)
        if self.clip is not None:
            x = np.clip(x, -self.clip, self.clip)
        return np.asarray(x, np.float32)

    def _require_shape(self, x: Array) -> None:
        if x.shape[1:] != self.shape:
            raise ValueError(f"Got observations of shape {x.shape[1:]} to count; wanted {self.shape}.")

    def _require_finite(self, x: Array) -> None:
        # One NaN would stay in the statistics, and in every observation after it.
        finite = np.isfinite(x)
        if not finite.all():
            index = tuple(int(i) for i in np.argwhere(~finite)[0])
            raise NonFiniteError(
                f"The observation filter got {x[index]} at index {index} of {x.shape}; observations must be finite."
            )

    def apply_changes(self, other: MeanStdFilter, with_buffer: bool = False) -> None:
        """Counts what `other` saw since its buffer was cleared; with `with_buffer`, takes over its buffer too."""
        self.rs.update(other.buffer)
        if with_buffer:
            self.buffer = other.buffer.copy()

    def copy(self) -> MeanStdFilter:
        """Returns an independent copy."""
        other = type(self)(self.shape)
        other.sync(self)
        return other

    def as_serializable(self) -> MeanStdFilter:
        """Returns a copy that can be sent to another process."""
        other = MeanStdFilter(self.shape)
        other.sync(self)
        return other

    def sync(self, other: MeanStdFilter) -> None:
        """Takes over settings, statistics and buffer from `other`."""
        self.demean, self.destd, self.clip = other.demean, other.destd, other.clip
        self.rs, self.buffer = other.rs.copy(), other.buffer.copy()

    def clear_buffer(self) -> None:
        """Forgets what was seen since the last call; the statistics that normalise keep it."""
        self.buffer = RunningStat(self.shape)

    reset_buffer = clear_buffer

    def get_state(self) -> State:
        """Returns settings, statistics and buffer."""
        settings = {"demean": self.demean, "destd": self.destd, "clip": self.clip}
        return {**super().get_state(), **settings, "rs": self.rs.get_state(), "buffer": self.buffer.get_state()}

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` returned; nothing is changed if it does not fit.

        Raises:
            CheckpointError: If it is of another kind of filter.
        """
        if "rs" not in state:
            raise CheckpointError(f"Filter state of a {state.get('type')}; wanted one of a {type(self).__name__}.")
        rs, buffer = RunningStat(self.shape), RunningStat(self.shape)
        rs.set_state(state["rs"])
        buffer.set_state(state["buffer"])
        clip = None if state["clip"] is None else float(state["clip"])
        self.demean, self.destd, self.clip = bool(state["demean"]), bool(state["destd"]), clip
        self.rs, self.buffer = rs, buffer

    def __repr__(self) -> str:
        """Shows settings and statistics."""
        return (
            f"{type(self).__name__}({self.shape}, demean={self.demean}, destd={self.destd}, clip={self.clip}, "
            f"rs={self.rs}, buffer={self.buffer})"
        )


class ConcurrentMeanStdFilter(MeanStdFilter):
    """A MeanStdFilter for several threads: each call sees and leaves whole statistics."""

    is_concurrent = True

    def __init__(
        self, shape: tuple[int, ...], demean: bool = True, destd: bool = True, clip: float | None = 10.0
    ) -> None:
        """Makes a filter that has seen nothing; arguments as for `MeanStdFilter`."""
        self._lock = threading.RLock()
        super().__init__(shape, demean, destd, clip)

    def __call__(self, x: Any, update: bool = True) -> Array:
        """Returns the normalised observation; with `update`, counts it first."""
        with self._lock:
            return super().__call__(x, update)

    def filter_batch(self, x: Any, update: bool = True) -> Array:
        """Returns B normalised observations; with `update`, counts them one after the other."""
        with self._lock:
            return super().filter_batch(x, update)

    def apply_changes(self, other: MeanStdFilter, with_buffer: bool = False) -> None:
        """Counts what `other` saw since its buffer was cleared."""
        with self._lock:
            super().apply_changes(other, with_buffer)

    def copy(self) -> MeanStdFilter:
        """Returns an independent copy with a lock of its own."""
        with self._lock:
            return super().copy()

    def as_serializable(self) -> MeanStdFilter:
        """Returns a copy without a lock, which can be sent to another process."""
        with self._lock:
            return super().as_serializable()

    def sync(self, other: MeanStdFilter) -> None:
        """Takes over settings, statistics and buffer from `other`."""
        with self._lock:
            super().sync(other)

    def clear_buffer(self) -> None:
        """Forgets what was seen since the last call."""
        with self._lock:
            super().clear_buffer()

    reset_buffer = clear_buffer

    def get_state(self) -> State:
        """Returns settings, statistics and buffer."""
        with self._lock:
            return super().get_state()

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` returned."""
        with self._lock:
            super().set_state(state)

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out the lock, which cannot be copied."""
        with self._lock:
            return {key: value for key, value in self.__dict__.items() if key != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Makes a new lock."""
        self.__dict__.update(state)
        self._lock = threading.RLock()


def get_filter(filter_config: str | Callable[[tuple[int, ...]], Any], shape: tuple[int, ...]) -> Any:
    """Returns the filter that `config["observation_filter"]` asks for.

    Args:
        filter_config: `"NoFilter"`, `"MeanStdFilter"`, `"ConcurrentMeanStdFilter"` (both without clipping), or a
            callable from a shape to a filter.
        shape: The shape of an observation after preprocessing.

    Raises:
        ConfigError: If it is none of these.
    """
    if filter_config == "NoFilter":
        return NoFilter()
    if filter_config == "MeanStdFilter":
        return MeanStdFilter(shape, clip=None)
    if filter_config == "ConcurrentMeanStdFilter":
        return ConcurrentMeanStdFilter(shape, clip=None)
    if callable(filter_config):
        return filter_config(shape)
    raise ConfigError(
        f'observation_filter: got {filter_config!r}; wanted "NoFilter", "MeanStdFilter", "ConcurrentMeanStdFilter" or '
        "a callable from a shape to a filter."
    )
