"""Structures of spaces: flattened, cut into rows, put together, made up.

An action structure is what a member of an action space looks like: an array for a simple space, a tuple or dict of
those for Tuple and Dict. All functions take actions with or without a leading batch dimension B.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rlframe.utils.errors import UnsupportedSpaceException
from rlframe.utils.spaces.old_gym import converted
from rlframe.utils.spaces.space_maps import map_space

Array = NDArray[Any]


def get_base_struct_from_space(space: Any) -> Any:
    """Returns the space as a structure: tuples and dicts in place of Tuple and Dict, other spaces as leaves."""
    space = converted(space)
    if isinstance(space, spaces.Tuple):
        return tuple(get_base_struct_from_space(sub) for sub in space.spaces)
    if isinstance(space, spaces.Dict):
        return {key: get_base_struct_from_space(sub) for key, sub in space.spaces.items()}
    return space


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
