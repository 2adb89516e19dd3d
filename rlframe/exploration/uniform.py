"""Uniform draws from action spaces, without the actions that a mask forbids, and their log-likelihoods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rlframe.utils.errors import UnsupportedSpaceException
from rlframe.utils.numpy import FLOAT_MIN, convert_to_numpy
from rlframe.utils.spaces.simplex import Simplex

Array = NDArray[Any]
Sampler = Callable[[np.random.Generator, int], Any]

#: Half of FLOAT_MIN: a mask still counts after something was added to it, e.g. by a dueling head.
MASKED = FLOAT_MIN / 2


def valid_sampler(space: Any, *, normalized: bool) -> Callable[[np.random.Generator, Any], Any]:
    """Returns `fn(rng, distribution) -> actions [B, …]`, uniform over a space but for invalid Discrete actions.

    Args:
        space: See `uniform_sampler`.
        normalized: See `uniform_sampler`.
    """
    uniform = uniform_sampler(space, normalized=normalized)
    if not isinstance(space, spaces.Discrete):
        return lambda rng, distribution: uniform(rng, len(distribution.inputs))

    def draw(rng: np.random.Generator, distribution: Any) -> Array:
        values = convert_to_numpy(distribution.inputs)
        # A distribution of the user's own may take other inputs than one for each action.
        if values.shape[1:] != (space.n,) or values.min(initial=0.0) > MASKED:
            return np.asarray(uniform(rng, len(values)))
        return random_valid(rng, values)[0]

    return draw


def valid_logp(space: Any, *, normalized: bool) -> Callable[[Any], Array]:
    """Returns `fn(distribution) -> log-likelihoods`, float32 `[B]`, of what `valid_sampler` draws.

    Args:
        space: See `uniform_sampler`.
        normalized: See `uniform_sampler`.
    """
    if isinstance(space, spaces.Discrete):
        return lambda distribution: -np.log(valid_counts(distribution, int(space.n)), dtype=np.float32)
    logp = uniform_logp(space, normalized=normalized)
    return lambda distribution: np.full(len(distribution.inputs), logp)


def valid_counts(distribution: Any, actions: int) -> Array:
    """Returns how many of a Discrete space's actions are valid in each row, all where none is. Integer `[B]`.

    Args:
        distribution: Its inputs are values or logits `[B, A]`, or others where it is of the user's own.
        actions: The space's actions.
    """
    values = convert_to_numpy(distribution.inputs)
    if values.shape[1:] != (actions,) or values.min(initial=0.0) > MASKED:
        return np.full(len(values), actions)
    counts: Array = (values > MASKED).sum(axis=1)
    return np.where(counts, counts, actions)


def uniform_logp(space: Any, *, normalized: bool) -> np.float32:
    """Returns the log-likelihood of each action of a space that is drawn from uniformly; 0 where it has no bounds.

    Args:
        space: See `uniform_sampler`.
        normalized: Whether a policy's actions for Boxes are normalised; densities are those in the policy's space.
    """
    if isinstance(space, (spaces.Tuple, spaces.Dict)):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return np.float32(sum(uniform_logp(part, normalized=normalized) for part in parts))
    if isinstance(space, spaces.Discrete):
        return np.float32(-np.log(int(space.n)))
    if isinstance(space, spaces.MultiDiscrete):
        return np.float32(-np.log(np.asarray(space.nvec, np.float64)).sum())
    if isinstance(space, spaces.MultiBinary):
        return np.float32(-np.log(2) * int(np.prod(space.shape)))
    if isinstance(space, spaces.Box) and space.dtype is not None and space.dtype.kind == "f":
        low, high = policy_bounds(space, normalized=normalized)
        widths = np.asarray(high, np.float64) - np.asarray(low, np.float64)
        return np.float32(-np.log(widths).sum()) if np.isfinite(widths).all() and (widths > 0).all() else np.float32(0)
    return np.float32(0)


def random_valid(rng: np.random.Generator, values: Array) -> tuple[Array, Array]:
    """Returns random actions among those that are valid, and which rows have any.

    Args:
        rng: Stream of random numbers.
        values: Values or logits `[B, A]`, FLOAT_MIN where an action is invalid.

    Returns:
        Integer `[B]`, 0 where none is valid; bool `[B]`.
    """
    # The largest of uniform numbers is a uniform choice; invalid actions get less than any of them.
    lots = np.where(values > MASKED, rng.random(values.shape), -1.0)
    return lots.argmax(axis=1), lots.max(axis=1) >= 0


def uniform_sampler(space: Any, *, normalized: bool) -> Sampler:
    """Returns a function that draws uniform actions of a policy.

    Args:
        space: The environment's action space: Discrete, MultiDiscrete, MultiBinary, Box, Simplex, or a Tuple or Dict.
        normalized: Whether a policy's actions for Boxes are normalised; see `policy_bounds`.

    Returns:
        `fn(rng, B) -> actions [B, …]`, a dict or tuple of such for nested spaces. Dimensions of a Box without bounds
        are standard normal, those with one bound are exponential from there.

    Raises:
        UnsupportedSpaceException: If the space is of another kind.
    """
    if isinstance(space, spaces.Tuple):
        parts = [uniform_sampler(sub, normalized=normalized) for sub in space.spaces]
        return lambda rng, rows: tuple(part(rng, rows) for part in parts)
    if isinstance(space, spaces.Dict):
        named = {key: uniform_sampler(sub, normalized=normalized) for key, sub in space.spaces.items()}
        return lambda rng, rows: {key: part(rng, rows) for key, part in named.items()}
    if isinstance(space, spaces.Discrete):
        count = int(space.n)
        return lambda rng, rows: rng.integers(count, size=rows)
    if isinstance(space, spaces.MultiDiscrete):
        nvec = np.asarray(space.nvec)
        return lambda rng, rows: rng.integers(0, nvec, size=(rows, *nvec.shape), dtype=np.int64)
    if isinstance(space, spaces.MultiBinary):
        shape = space.shape
        return lambda rng, rows: rng.integers(2, size=(rows, *shape), dtype=np.int8)
    if isinstance(space, Simplex):
        return _simplex_sampler(space)
    if isinstance(space, spaces.Box):
        return _box_sampler(space, normalized)
    raise UnsupportedSpaceException(
        f"Cannot draw random actions from {space}; wanted Discrete, MultiDiscrete, MultiBinary, Box, Simplex, or a "
        f"Tuple or Dict of these. Choose an exploration without random time steps."
    )


def policy_bounds(space: spaces.Box, *, normalized: bool) -> tuple[Array, Array]:
    """Returns the bounds of a policy's actions for a Box of the environment.

    Args:
        space: The environment's Box.
        normalized: Whether actions are mapped to the environment's range later: bounded float dimensions are then
            [-1, 1], integers count from 0.

    Returns:
        Lowest and highest values, `[*shape]`, infinite where there is no bound; int64 for integer Boxes.
    """
    low, high = space.low, space.high
    if np.issubdtype(space.dtype, np.integer):
        low, high = low.astype(np.int64), high.astype(np.int64)
        return (np.zeros_like(low), high - low) if normalized else (low, high)
    if not normalized:
        return low, high
    bounded = space.bounded_below & space.bounded_above
    return np.where(bounded, -1.0, low).astype(low.dtype), np.where(bounded, 1.0, high).astype(high.dtype)


def _simplex_sampler(space: Simplex) -> Sampler:
    ones, outer = np.ones(space.dim), tuple(space.shape or ())[:-1]
    return lambda rng, rows: rng.dirichlet(ones, size=(rows, *outer)).astype(space.dtype)


def _box_sampler(space: spaces.Box, normalized: bool) -> Sampler:
    low, high = policy_bounds(space, normalized=normalized)
    if np.issubdtype(space.dtype, np.integer):
        return lambda rng, rows: rng.integers(low, high, size=(rows, *low.shape), endpoint=True, dtype=np.int64)
    below, above = np.isfinite(low), np.isfinite(high)
    if (below & above).all():
        # Two products, not a span: high − low can overflow.
        def bounded(rng: np.random.Generator, rows: int) -> Array:
            share = rng.random((rows, *low.shape))
            return np.asarray(low * (1.0 - share) + high * share, space.dtype)

        return bounded
    floor, ceiling = np.where(below, low, 0.0), np.where(above, high, 0.0)

    def partly_bounded(rng: np.random.Generator, rows: int) -> Array:
        shape = (rows, *low.shape)
        share, step = rng.random(shape), rng.standard_exponential(shape)
        actions = np.where(below & above, floor * (1.0 - share) + ceiling * share, rng.standard_normal(shape))
        actions = np.where(below & ~above, floor + step, actions)
        return np.where(above & ~below, ceiling - step, actions).astype(space.dtype)

    return partly_bounded
