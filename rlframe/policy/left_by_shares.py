"""What losses of a program's own leave in the models of several devices, as one device would have it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlframe.policy.parts import merge_kept


def merge_left(
    left: Sequence[Mapping[str, Any]], weights: Sequence[Any], concat: Callable[[list[Any]], Any]
) -> dict[str, Any]:
    """Returns what the losses of several shares of a batch left in `model.tower_stats`, as one of the whole would.

    Args:
        left: By share: means over rows, tensors with one entry per row, and lists of these; other objects are those of
            the last share.
        weights: Each share's part of the rows.
        concat: Joins tensors along their rows.
    """
    return {name: _merged([share[name] for share in left if name in share], weights, concat) for name in left[-1]}


def _merged(parts: list[Any], weights: Sequence[Any], concat: Callable[[list[Any]], Any]) -> Any:
    if isinstance(parts[0], (list, tuple)):
        return [_merged(list(each), weights, concat) for each in zip(*parts, strict=True)]
    if not hasattr(parts[0], "shape") or len(parts) < len(weights):
        return parts[-1]
    return merge_kept([{"": part} for part in parts], weights, concat)[""]
