"""What is done to actions leaf by leaf of their space: the way between a policy's range and an environment's.

All functions take actions with or without a leading batch dimension B.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rlframe.utils.spaces.old_gym import converted

Array = NDArray[Any]


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
