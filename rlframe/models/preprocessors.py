"""From the observations of an environment to the arrays that models see.

Shapes: `D` is the length of a flattened observation, `B` a leading batch dimension. Every preprocessor can write its
result straight into a row of a preallocated array, which is how nested observations are flattened: no leaf is ever
concatenated.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rlframe.utils.errors import EnvError, UnsupportedSpaceException
from rlframe.utils.spaces.observations import check_observation
from rlframe.utils.spaces.old_gym import convert_spaces, known_to_both
from rlframe.utils.spaces.repeated import Repeated

Array = NDArray[Any]

ATARI_OBS_SHAPE = (210, 160, 3)
ATARI_RAM_OBS_SHAPE = (128,)


#: Option of preprocessors: leave the parts of nested observations as they are.
_RAW = "_raw_leaves"


class Preprocessor:
    """Turns an observation into one array.

    Users' own preprocessors override `_init_shape` and `transform`.

    Attributes:
        shape: The shape of the result.
        marks_original: Whether models see the parts of the environment's space in a result.
        marks_raw: Whether these parts are as they were in the environment, Discrete ones no vectors.
    """

    marks_original = False

    def __init__(self, obs_space: spaces.Space[Any], options: Mapping[str, Any] | None = None) -> None:
        """Prepares for the observations of `obs_space`.

        Args:
            obs_space: The environment's observation space.
            options: The model config; image preprocessors read `dim`, `grayscale` and `zero_mean`.
        """
        self._obs_space = obs_space = convert_spaces(obs_space)
        self._options: dict[str, Any] = dict(options or {})
        self.marks_raw = bool(self._options.get(_RAW))
        self.shape: tuple[int, ...] = tuple(self._init_shape(obs_space, self._options))
        self._size = int(np.prod(self.shape, dtype=np.int64))
        self._observation_space: spaces.Space[Any] | None = None

    def _init_shape(self, obs_space: Any, options: dict[str, Any]) -> tuple[int, ...]:
        """Returns the shape of the result; called once, by the constructor."""
        raise NotImplementedError(f"{type(self).__name__} must define _init_shape().")

    def transform(self, observation: Any) -> Array:
        """Returns the preprocessed observation."""
        raise NotImplementedError(f"{type(self).__name__} must define transform().")

    def write(self, observation: Any, array: Array, offset: int) -> None:
        """Writes the flattened result to `array[offset:offset + size]`; `array` is one row, float32 `[D]`."""
        array[offset : offset + self._size] = np.ravel(self.transform(observation))

    def write_batch(self, observations: Any, array: Array, offset: int) -> None:
        """Writes B results to `array[:, offset:offset + size]`.

        Args:
            observations: Observations whose leaves have a leading dimension B.
            array: float32 `[B, D]`.
            offset: The first column to write to.
        """
        for row, observation in zip(array, observations, strict=True):
            self.write(observation, row, offset)

    def check_shape(self, observation: Any) -> None:
        """Raises EnvError or NonFiniteError, naming the leaf, if `observation` does not fit the space."""
        check_observation(observation, self._obs_space)

    @property
    def size(self) -> int:
        """The number of values in a result."""
        return self._size

    @property
    def observation_space(self) -> spaces.Space[Any]:
        """The space of the results; its `original_space` is the environment's, if results can be taken apart again."""
        if self._observation_space is None:
            self._observation_space = known_to_both(self._make_space())
            if self.marks_original:
                self._observation_space.original_space = self._obs_space  # type: ignore[attr-defined]  # RLlib's mark
            if self.marks_raw:
                self._observation_space.raw_leaves = True  # type: ignore[attr-defined]  # models look for it
        return self._observation_space

    def _make_space(self) -> spaces.Space[Any]:
        low, high = self.bounds()
        return spaces.Box(low, high, shape=self.shape, dtype=np.float32)

    def bounds(self) -> tuple[Array, Array]:
        """Returns the least and greatest results, float32 arrays of `shape`; unknown ones are infinite."""
        return np.full(self.shape, -np.inf, np.float32), np.full(self.shape, np.inf, np.float32)


class NoPreprocessor(Preprocessor):
    """Leaves the observation as it is, and its dtype as declared; only float64 becomes float32."""

    marks_original = True

    def _init_shape(self, obs_space: Any, options: dict[str, Any]) -> tuple[int, ...]:  # noqa: ARG002
        if obs_space.shape is None:
            raise UnsupportedSpaceException(
                f"Observations of {obs_space} have no fixed shape; wanted Box, Discrete, MultiDiscrete, MultiBinary, "
                "Repeated, or a Tuple or Dict of these. Convert them in the environment, or register a custom "
                "preprocessor."
            )
        declared = np.dtype(obs_space.dtype) if obs_space.dtype is not None else np.dtype(np.float32)
        self._dtype = np.dtype(np.float32) if declared == np.float64 else declared
        return tuple(obs_space.shape)

    def transform(self, observation: Any) -> Array:
        """Returns the observation as an array of the declared dtype; the same array if it is one already."""
        return np.asarray(observation, self._dtype)

    def write(self, observation: Any, array: Array, offset: int) -> None:
        """Writes the observation, flattened, to `array[offset:offset + size]`."""
        array[offset : offset + self._size] = np.asarray(observation).reshape(-1)

    def write_batch(self, observations: Any, array: Array, offset: int) -> None:
        """Writes B observations to `array[:, offset:offset + size]`."""
        array[:, offset : offset + self._size] = np.reshape(observations, (len(array), self._size))

    def _make_space(self) -> spaces.Space[Any]:
        space = self._obs_space
        if isinstance(space, spaces.Box) and space.dtype != self._dtype:
            low, high = self.bounds()
            return spaces.Box(low, high, dtype=np.float32)
        return copy.copy(space)

    def bounds(self) -> tuple[Array, Array]:
        """Returns the bounds of the environment's space, as float32."""
        if isinstance(self._obs_space, spaces.Box):
            # A float64 bound beyond float32 becomes infinite, which is what it is for float32 observations.
            with np.errstate(over="ignore"):
                return self._obs_space.low.astype(np.float32), self._obs_space.high.astype(np.float32)
        if isinstance(self._obs_space, spaces.MultiBinary):
            return np.zeros(self.shape, np.float32), np.ones(self.shape, np.float32)
        return super().bounds()


class OneHotPreprocessor(Preprocessor):
    """One-hot vectors for Discrete; for MultiDiscrete one after the other, in C order of its elements."""

    marks_original = True

    def _init_shape(self, obs_space: Any, options: dict[str, Any]) -> tuple[int, ...]:  # noqa: ARG002
        if isinstance(obs_space, spaces.Discrete):
            sizes = np.array([obs_space.n], np.int64)
            self._start = np.array([obs_space.start], np.int64)
        else:
            sizes = np.asarray(obs_space.nvec, np.int64).ravel()
            self._start = np.broadcast_to(getattr(obs_space, "start", 0), obs_space.nvec.shape).astype(np.int64).ravel()
        self._sizes = sizes
        # Adding this to an observation gives the positions of its ones.
        self._shift = np.concatenate([[0], np.cumsum(sizes)[:-1]]) - self._start
        self._single = int(self._shift[0]) if sizes.size == 1 else None
        return (int(sizes.sum()),)

    def transform(self, observation: Any) -> Array:
        """Returns the one-hot vector, float32 `[D]`."""
        array = np.zeros(self.shape, np.float32)
        self._mark(observation, array, 0)
        return array

    def write(self, observation: Any, array: Array, offset: int) -> None:
        """Writes the one-hot vector to `array[offset:offset + size]`."""
        array[offset : offset + self._size] = 0.0
        self._mark(observation, array, offset)

    def _mark(self, observation: Any, array: Array, offset: int) -> None:
        if self._single is not None:
            index = int(observation if np.ndim(observation) == 0 else np.ravel(observation)[0]) + self._single
            if not 0 <= index < self._size:
                self._refuse(observation)
            array[offset + index] = 1.0
            return
        values = self._whole(np.asarray(observation).reshape(-1), observation)
        relative = values - self._start
        if (relative < 0).any() or (relative >= self._sizes).any():
            self._refuse(observation)
        array[values + (self._shift + offset)] = 1.0

    def _whole(self, values: Array, observation: Any) -> Array:
        """Returns numbers as integers; whole ones may be floats, as in Discrete spaces."""
        if values.dtype.kind != "f":
            return values
        with np.errstate(invalid="ignore"):  # of what is no number: it differs from what is made of it
            whole = values.astype(np.int64)
        if (whole != values).any():
            self._refuse(observation)
        return whole

    def _refuse(self, observation: Any) -> None:
        # Without this an observation out of range would set a bit of the neighbouring leaf.
        check_observation(observation, self._obs_space)
        raise EnvError(f"Observation {observation!r} is outside of {self._obs_space}.")

    def write_batch(self, observations: Any, array: Array, offset: int) -> None:
        """Writes B one-hot vectors to `array[:, offset:offset + size]`."""
        values = np.reshape(observations, (len(array), self._sizes.size))
        values = np.stack([self._whole(row, row) for row in values]) if values.dtype.kind == "f" else values
        relative = values - self._start
        bad = ((relative < 0) | (relative >= self._sizes)).any(axis=1)
        if bad.any():
            self._refuse(np.asarray(observations)[int(bad.argmax())])
        array[:, offset : offset + self._size] = 0.0
        array[np.arange(len(array))[:, None], values + (self._shift + offset)] = 1.0

    def bounds(self) -> tuple[Array, Array]:
        """Returns zeros and ones."""
        return np.zeros(self.shape, np.float32), np.ones(self.shape, np.float32)


class GenericPixelPreprocessor(Preprocessor):
    """Atari screens `(210, 160, 3)`: borders cut off, averaged down to `dim`, perhaps grey, scaled as pixels to 255.

    Those of a space within [-1, 1] are scaled already, and stay so. Programs may put images of another size through it,
    `(H, W, 3)` with H above 50.
    """

    marks_original = True

    def _init_shape(self, obs_space: Any, options: dict[str, Any]) -> tuple[int, ...]:
        size = tuple(obs_space.shape or ())
        if len(size) != 3 or size[2] != ATARI_OBS_SHAPE[2] or size[0] <= 2 * _ATARI_BORDER:
            raise UnsupportedSpaceException(
                f"GenericPixelPreprocessor: got images {size}, wanted (H, W, 3) with over {2 * _ATARI_BORDER} rows "
                f"(it drops {_ATARI_BORDER} at the top and at the bottom); use NoPreprocessor for other images."
            )
        self._grayscale = bool(options.get("grayscale", False))
        #: What is subtracted from averaged pixels, and what they are divided by then.
        self.offset, self.unit = (128.0, 128.0) if options.get("zero_mean", True) else (0.0, 255.0)
        self._bounds = ((0.0 - self.offset) / self.unit, 1.0)
        low, high = float(np.min(obs_space.low)), float(np.max(obs_space.high))
        if low >= -1.0 and high <= 1.0:
            self.offset, self.unit, self._bounds = 0.0, 1.0, (low, high)
        dim = int(options.get("dim", 84))
        self._rows = _area_weights(size[0] - 2 * _ATARI_BORDER, dim)
        self._columns = _area_weights(size[1], dim)
        return (dim, dim, 1 if self._grayscale else 3)

    def transform(self, observation: Any) -> Array:
        """Returns the screen, float32 `(dim, dim, 1 or 3)`; pixels in [-1, 1) with `zero_mean` and [0, 1] without."""
        screen = np.asarray(observation)[_ATARI_BORDER:-_ATARI_BORDER].astype(np.float32)
        if self._grayscale:
            screen = screen.mean(axis=2, keepdims=True)
        # [dim, H] x [H, W, C] -> [dim, W, C], then the same along W.
        narrow = np.tensordot(self._rows, screen, axes=(1, 0))
        small = np.tensordot(self._columns, narrow, axes=(1, 1)).transpose(1, 0, 2)
        scaled: Array = (small - np.float32(self.offset)) / np.float32(self.unit)
        return np.ascontiguousarray(scaled, np.float32)

    def bounds(self) -> tuple[Array, Array]:
        """Returns [-1, 1], or [0, 1] without `zero_mean`; the space's own where it is within [-1, 1]."""
        low, high = self._bounds
        return np.full(self.shape, low, np.float32), np.full(self.shape, high, np.float32)


class AtariRamPreprocessor(Preprocessor):
    """The 128 bytes of an Atari's memory, scaled to [-1, 1)."""

    marks_original = True

    def _init_shape(self, obs_space: Any, options: dict[str, Any]) -> tuple[int, ...]:  # noqa: ARG002
        return ATARI_RAM_OBS_SHAPE

    def transform(self, observation: Any) -> Array:
        """Returns (memory - 128) / 128, float32 `[128]`."""
        return (np.asarray(observation).astype(np.float32) - 128.0) / np.float32(128.0)

    def bounds(self) -> tuple[Array, Array]:
        """Returns [-1, 1]."""
        return np.full(self.shape, -1.0, np.float32), np.ones(self.shape, np.float32)


class _Flattening(Preprocessor):
    """What Tuple and Dict have in common: children, whose results stand one after the other.

    Attributes:
        preprocessors: One per child, in the order of the result.
        keys: The child's index or key, in the same order.
    """

    marks_original = True
    preprocessors: list[Preprocessor]
    keys: list[Any]

    def _children(self, obs_space: Any) -> list[tuple[Any, spaces.Space[Any]]]:
        raise NotImplementedError

    def _init_shape(self, obs_space: Any, options: dict[str, Any]) -> tuple[int, ...]:
        children = self._children(obs_space)
        self.keys = [key for key, _ in children]
        self.preprocessors = [_of_child(space, options) for _, space in children]
        return (sum(child.size for child in self.preprocessors),)

    def transform(self, observation: Any) -> Array:
        """Returns all leaves in one float32 vector `[D]`."""
        array = np.empty(self.shape, np.float32)
        self.write(observation, array, 0)
        return array

    def write(self, observation: Any, array: Array, offset: int) -> None:
        """Writes all leaves to `array[offset:offset + size]`."""
        for key, child in zip(self.keys, self.preprocessors, strict=True):
            child.write(observation[key], array, offset)
            offset += child.size

    def write_batch(self, observations: Any, array: Array, offset: int) -> None:
        """Writes B observations, given as one structure of arrays, to `array[:, offset:offset + size]`."""
        for key, child in zip(self.keys, self.preprocessors, strict=True):
            child.write_batch(observations[key], array, offset)
            offset += child.size

    def bounds(self) -> tuple[Array, Array]:
        """Returns the children's bounds, one after the other."""
        lows, highs = zip(*(child.bounds() for child in self.preprocessors), strict=True)
        return np.concatenate([low.ravel() for low in lows]), np.concatenate([high.ravel() for high in highs])


class TupleFlatteningPreprocessor(_Flattening):
    """A Tuple observation as one float32 vector."""

    def _children(self, obs_space: Any) -> list[tuple[Any, spaces.Space[Any]]]:
        return list(enumerate(obs_space.spaces))


class DictFlatteningPreprocessor(_Flattening):
    """A Dict observation as one float32 vector, in the order of the sorted keys."""

    def _children(self, obs_space: Any) -> list[tuple[Any, spaces.Space[Any]]]:
        return [(key, obs_space.spaces[key]) for key in sorted(obs_space.spaces)]


class RepeatedValuesPreprocessor(Preprocessor):
    """A list of up to `max_len` items as `[length, item 0, item 1, …, zeros]`, float32.

    Attributes:
        child_preprocessor: The preprocessor of every item.
    """

    marks_original = True

    def _init_shape(self, obs_space: Any, options: dict[str, Any]) -> tuple[int, ...]:
        self.child_preprocessor = _of_child(obs_space.child_space, options)
        self._max_len = int(obs_space.max_len)
        return (1 + self._max_len * self.child_preprocessor.size,)

    def transform(self, observation: Any) -> Array:
        """Returns the vector, float32 `[1 + max_len * child size]`."""
        array = np.empty(self.shape, np.float32)
        self.write(observation, array, 0)
        return array

    def write(self, observation: Any, array: Array, offset: int) -> None:
        """Writes the vector to `array[offset:offset + size]`."""
        if len(observation) > self._max_len:
            self.check_shape(observation)
        end = offset + self._size
        array[offset] = len(observation)
        offset += 1
        for item in observation:
            self.child_preprocessor.write(item, array, offset)
            offset += self.child_preprocessor.size
        array[offset:end] = 0.0

    def bounds(self) -> tuple[Array, Array]:
        """Returns 0 to `max_len` for the length, and the child's bounds widened by the zero of absent items."""
        low, high = (bound.ravel() for bound in self.child_preprocessor.bounds())
        lows = np.concatenate([[0.0], np.tile(np.minimum(low, 0.0), self._max_len)])
        highs = np.concatenate([[float(self._max_len)], np.tile(np.maximum(high, 0.0), self._max_len)])
        return lows.astype(np.float32), highs.astype(np.float32)


_ATARI_BORDER = 25  # rows above and below the playing field


def _area_weights(size: int, target: int) -> Array:
    """Returns the float32 `[target, size]` matrix that averages `size` pixels down (or up) to `target`.

    Row i weighs each pixel by its overlap with the interval [i, i + 1) · size / target.
    """
    edges = np.arange(target + 1) * (size / target)
    pixels = np.arange(size)
    overlap = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    weights = np.clip(overlap, 0.0, None)
    normalised: Array = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    return normalised


def without_preprocessing(space: spaces.Space[Any]) -> Preprocessor:
    """Returns what leaves the observations of a space as they are.

    Those of Dict and Tuple spaces travel as one float32 vector all the same, in which each leaf stands as it is: a
    Discrete one as one number. Models get them as nested dicts and tuples, with integers where the space has some.
    """
    maker = get_preprocessor(space)
    nested = issubclass(maker, _Flattening | RepeatedValuesPreprocessor)
    return maker(space, {_RAW: True}) if nested else NoPreprocessor(space)


def _of_child(space: spaces.Space[Any], options: dict[str, Any]) -> Preprocessor:
    return without_preprocessing(space) if options.get(_RAW) else get_preprocessor(space)(space, options)


def _holds_pixels(space: spaces.Box) -> bool:
    """Whether a space's numbers are pixels: integers, or floats to 255 or within [-1, 1]."""
    low, high = float(np.min(space.low)), float(np.max(space.high))
    return space.dtype is None or space.dtype.kind != "f" or (low >= 0 and high == 255) or (low >= -1 and high <= 1)


def get_preprocessor(space: spaces.Space[Any]) -> type[Preprocessor]:
    """Returns the class that preprocesses observations of `space`; made with `(space, options)`.

    Raises:
        UnsupportedSpaceException: If `space` is none of Gymnasium's or the old gym's.
    """
    space = convert_spaces(space)
    kinds: list[tuple[tuple[type, ...], type[Preprocessor]]] = [
        ((spaces.Discrete, spaces.MultiDiscrete), OneHotPreprocessor),
        ((spaces.Tuple,), TupleFlatteningPreprocessor),
        ((spaces.Dict,), DictFlatteningPreprocessor),
        ((Repeated,), RepeatedValuesPreprocessor),
    ]
    for types, preprocessor in kinds:
        if isinstance(space, types):
            return preprocessor
    if isinstance(space, spaces.Box):
        if space.shape == ATARI_OBS_SHAPE and _holds_pixels(space):
            return GenericPixelPreprocessor
        if space.shape == ATARI_RAM_OBS_SHAPE and space.dtype == np.uint8:
            return AtariRamPreprocessor
    if not isinstance(space, spaces.Space):
        raise UnsupportedSpaceException(
            f"The observation space is {space!r} ({type(space).__name__}); wanted a space of gymnasium.spaces."
        )
    return NoPreprocessor
