"""How models see past actions: choices one-hot, numbers as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def action_encoding(action_space: Any) -> list[int]:
    """Returns how a model sees past actions: the number of choices of each component, 0 for one that is a number.

    Args:
        action_space: Discrete or MultiDiscrete, which are seen one-hot; others are seen as they are.
    """
    kind = type(action_space).__name__
    if kind == "Discrete":
        return [int(action_space.n)]
    if kind == "MultiDiscrete":
        return [int(n) for n in np.asarray(action_space.nvec).reshape(-1)]
    if kind == "MultiBinary":
        return [0] * int(np.prod(action_space.shape))
    children = getattr(action_space, "spaces", None)
    if children is not None:
        # Dicts in the order in which their flat actions lie: gymnasium sorts the keys.
        parts = children.values() if isinstance(children, Mapping) else children
        return [size for child in parts for size in action_encoding(child)]
    return [0] * int(np.prod(action_space.shape or (1,)))


def encoded_size(encoding: Sequence[int]) -> int:
    """Returns the width of encoded actions."""
    return sum(size or 1 for size in encoding)


def encode_actions(actions: NDArray[Any], encoding: Sequence[int]) -> NDArray[np.float32]:
    """Returns actions `[B, ...]` as float32 `[B, D]`: components with choices one-hot, others as they are."""
    rows = np.asarray(actions).reshape(len(actions), -1)
    parts: list[NDArray[np.float32]] = []
    for index, size in enumerate(encoding):
        column = rows[:, index]
        if size:
            one_hot = np.zeros((len(rows), size), np.float32)
            one_hot[np.arange(len(rows)), column.astype(np.int64)] = 1.0
            parts.append(one_hot)
        else:
            parts.append(column.astype(np.float32).reshape(-1, 1))
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
