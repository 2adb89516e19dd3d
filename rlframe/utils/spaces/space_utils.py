"""Structures of spaces, and the way of actions between a policy and an environment.

An action structure is what a member of an action space looks like: an array for a simple space, a tuple or dict of
those for Tuple and Dict. All functions take actions with or without a leading batch dimension B.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rlframe.utils.errors import UnsupportedSpaceException
from rlframe.utils.spaces.old_gym import converted

Array = NDArray[Any]


def get_base_struct_from_space(space: Any) -> Any:
    """Returns the space as a structure: tuples and dicts in place of Tuple and Dict, other spaces as leaves."""
    space = converted(space)
    if isinstance(space, spaces.Tuple):
        return tuple(get_base_struct_from_space(sub) for sub in space.spaces)
    if isinstance(space, spaces.Dict):
        return {key: get_base_struct_from_space(sub) for key, sub in space.spaces.items()}
    return space


def map_space(function: Callable[[Any, Any], Any], value: Any, struct: Any) -> Any:
    """Returns the structure of `function(leaf value, leaf space)`.

    Args:
        function: Takes a leaf of `value` and its space.
        value: A structure like `struct`.
        struct: A space, or a structure of spaces.
    """
    struct = _as_struct(struct)
    if isinstance(struct, Mapping):
        return {key: map_space(function, value[key], sub) for key, sub in struct.items()}
    if isinstance(struct, (tuple, list)):
        return tuple(map_space(function, value[index], sub) for index, sub in enumerate(struct))
    return function(value, struct)


def _as_struct(given: Any) -> Any:
    """Returns the structure of a space; asked for each leaf of each action, so what needs no conversion comes first."""
    if not isinstance(given, (spaces.Space, Mapping, tuple, list)):
        given = converted(given)
    return given.spaces if isinstance(given, (spaces.Tuple, spaces.Dict)) else given


def unsquash_action(action: Any, action_space_struct: Any) -> Any:
    """Returns actions of the environment's range for a policy's normalised ones.

    Of a float Box, dimensions bounded on both sides are mapped from [-1, 1] onto [low, high] and clipped there; the
    others keep their value, but for a bound on one side. Of an integer Box, `low` is added (policies count from 0).
    Other spaces keep the action.

    Args:
        action: One action or B of them, as arrays, or a structure of those.
        action_space_struct: The action space, or `get_base_struct_from_space` of it.

    Returns:
        A structure like `action`; Box leaves have the dtype of their space.
    """
    return map_space(_unsquash, action, action_space_struct)


def normalize_action(action: Any, action_space_struct: Any) -> Any:
    """Returns the inverse of `unsquash_action`: [low, high] to [-1, 1], integer Boxes counted from 0."""
    return map_space(_normalize, action, action_space_struct)


def clip_action(action: Any, action_space: Any) -> Any:
    """Returns the action with the Box leaves clipped to their bounds, in the dtype of their space."""
    return map_space(_clip, action, action_space)


def _bounded(space: spaces.Box) -> Array:
    return np.logical_and(space.bounded_below, space.bounded_above)


def _unsquash(action: Any, space: Any) -> Any:
    if not isinstance(space, spaces.Box):
        return action
    if np.issubdtype(space.dtype, np.integer):
        return _clip(np.asarray(action) + space.low.astype(np.int64), space)
    action = np.asarray(action, space.dtype)
    # A weighted mean reaches both bounds exactly, and does not overflow where they span all floats.
    share = np.minimum(np.maximum(0.5 * action + 0.5, 0), 1)
    bounded = _bounded(space)
    if bounded.all():
        return _clip(space.low * (1 - share) + space.high * share, space)
    # Zeros stand in for infinite bounds, whose arithmetic would warn; those results are not taken.
    low, high = np.where(bounded, space.low, 0), np.where(bounded, space.high, 0)
    return _clip(np.where(bounded, low * (1 - share) + high * share, action), space)


def _normalize(action: Any, space: Any) -> Any:
    if not isinstance(space, spaces.Box):
        return action
    if np.issubdtype(space.dtype, np.integer):
        return np.asarray(np.asarray(action) - space.low.astype(np.int64), space.dtype)
    action = np.asarray(action, space.dtype)
    bounded = _bounded(space)
    low, high = np.where(bounded, space.low, 0), np.where(bounded, space.high, 0)
    half_range = 0.5 * high - 0.5 * low  # halves, because the range itself may overflow
    # A dimension with low == high has one action; any normalised value means it, so it gets the middle one.
    wide = half_range > 0
    scaled = 2 * ((0.5 * action - 0.5 * low) / np.where(wide, half_range, 1)) - wide
    return np.asarray(np.where(bounded, scaled, action), space.dtype)


def _clip(action: Any, space: Any) -> Any:
    if not isinstance(space, spaces.Box):
        return action
    return np.asarray(np.minimum(np.maximum(action, space.low), space.high), space.dtype)


def flatten_to_single_ndarray(input_: Any, batch_dims: int = 0) -> Array:
    """Returns all leaves of a structure in one array.

    Args:
        input_: An array, or a structure of arrays or numbers. Dicts count in the order of their sorted keys.
        batch_dims: How many leading dimensions all leaves share and keep: 0 for one action, 1 for `[B, …]`.

    Returns:
        The array itself if `input_` is no structure, otherwise `[*batch dimensions, D]`.
    """
    if not isinstance(input_, (tuple, list, Mapping)):
        return np.asarray(input_)
    leaves = [np.asarray(leaf) for leaf in _leaves(input_)]
    return np.concatenate([leaf.reshape(*leaf.shape[:batch_dims], -1) for leaf in leaves], axis=batch_dims)


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [leaf for key in sorted(value) for leaf in _leaves(value[key])]
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]


def unbatch(batches_struct: Any) -> list[Any]:
    """Returns B structures from one whose leaves have a leading dimension B.

    A list of arrays, dicts or tuples is a structure, and its rows are lists; a list of numbers is a leaf.
    """
    if isinstance(batches_struct, Mapping):
        keys = list(batches_struct)
        columns = [unbatch(batches_struct[key]) for key in keys]
        return [dict(zip(keys, row, strict=True)) for row in zip(*columns, strict=True)]
    if isinstance(batches_struct, tuple):
        return list(zip(*(unbatch(sub) for sub in batches_struct), strict=True))
    if isinstance(batches_struct, list) and any(_has_rows(value) for value in batches_struct):
        return [list(row) for row in zip(*(unbatch(sub) for sub in batches_struct), strict=True)]
    return list(batches_struct)


def _has_rows(value: Any) -> bool:
    return isinstance(value, (Mapping, tuple, list)) or np.ndim(value) > 0


def batch(list_of_structs: Sequence[Any]) -> Any:
    """Returns one structure with a leading dimension B from B equal structures; the inverse of `unbatch`.

    Raises:
        ValueError: If the list is empty.
    """
    if not list_of_structs:
        raise ValueError("batch: the list of structures is empty; wanted at least one.")
    first = list_of_structs[0]
    if isinstance(first, Mapping):
        return {key: batch([item[key] for item in list_of_structs]) for key in first}
    if isinstance(first, tuple):
        return tuple(batch([item[index] for item in list_of_structs]) for index in range(len(first)))
    return np.stack([np.asarray(item) for item in list_of_structs])


def get_dummy_batch_for_space(
    space: Any,
    batch_size: int = 32,
    fill_value: float | str = 0.0,
    time_size: int | None = None,
    time_major: bool = False,
    one_hot_discrete: bool = False,
) -> Any:
    """Returns a batch of made-up members of a space, of the right shapes and dtypes.

    Args:
        space: Any space with fixed shapes.
        batch_size: The leading dimension B; 0 for none.
        fill_value: What to fill with; `"random"` for samples of the space.
        time_size: The length T of a second dimension, or None for none.
        time_major: Whether T stands before B.
        one_hot_discrete: Whether Discrete and MultiDiscrete leaves are one-hot float32 vectors.

    Returns:
        A structure of arrays `[B, …]`, `[B, T, …]` or `[T, B, …]`.
    """
    lead = (batch_size,) if batch_size else ()
    if time_size is not None:
        lead = (time_size, *lead) if time_major else (*lead, time_size)

    def fill(_: Any, leaf: Any) -> Array:
        return _dummy_leaf(leaf, lead, fill_value, one_hot_discrete)

    struct = get_base_struct_from_space(space)
    return map_space(fill, struct, struct)


def _dummy_leaf(space: Any, lead: tuple[int, ...], fill_value: float | str, one_hot: bool) -> Array:
    if space.shape is None:
        raise UnsupportedSpaceException(f"{space} has no fixed shape, so no batch of it can be made up.")
    count = int(np.prod(lead, dtype=np.int64))
    if fill_value == "random":
        values = np.stack([np.asarray(space.sample()) for _ in range(max(count, 1))])[:count]
    else:
        values = np.full((count, *space.shape), fill_value, space.dtype)
    if one_hot and isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        values = _one_hot(values.reshape(count, -1), space)
    return values.reshape((*lead, *values.shape[1:])).astype(values.dtype, copy=False)


def _one_hot(values: Array, space: spaces.Discrete | spaces.MultiDiscrete) -> Array:
    """Returns `[N, sum of sizes]` float32 from integers `[N, sizes]`; a fill value counts from the space's start."""
    sizes = np.atleast_1d(space.n if isinstance(space, spaces.Discrete) else space.nvec.ravel())
    start = np.broadcast_to(np.asarray(space.start).ravel(), sizes.shape)
    index = np.clip(values - start, 0, sizes - 1) + np.concatenate([[0], np.cumsum(sizes)[:-1]])
    array = np.zeros((len(values), int(sizes.sum())), np.float32)
    array[np.arange(len(values))[:, None], index] = 1.0
    return array
