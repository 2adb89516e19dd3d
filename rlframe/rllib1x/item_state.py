"""Items of a replay buffer as arrays and numbers, and back: what a checkpoint holds of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlframe.data.nested import map_nested
from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch


def pack_items(items: Sequence[Any]) -> dict[str, Any]:
    """Returns items as plain state: of like ones the rows one behind the other, so that columns stay few arrays."""
    if len(items) > 1 and not _alike(items):
        return {"each": [pack_items([item]) for item in items]}
    if items and isinstance(items[0], MultiAgentBatch):
        policies = {pid: pack_items([item.policy_batches[pid] for item in items]) for pid in items[0].policy_batches}
        return {"env_steps": [item.count for item in items], "policies": policies}
    rows = SampleBatch.concat_samples(items).decompress_if_needed()
    layout = {key: value for key, value in rows.layout().items() if key in ("zero_padded", "max_seq_len", "time_major")}
    return {
        "counts": np.array([item.count for item in items], np.int64),
        "columns": {key: value.tolist() if _is_of_objects(value) else value for key, value in rows.items()},
        "layout": layout,
    }


def unpack_items(state: Mapping[str, Any]) -> list[Any]:
    """Returns the items that `pack_items` was given."""
    if "each" in state:
        return [item for part in state["each"] for item in unpack_items(part)]
    if "policies" in state:
        policies = {pid: unpack_items(part) for pid, part in state["policies"].items()}
        return [
            MultiAgentBatch({pid: items[number] for pid, items in policies.items()}, count)
            for number, count in enumerate(state["env_steps"])
        ]
    counts = np.asarray(state["counts"]).tolist()
    columns = {key: _as_objects(value) if isinstance(value, list) else value for key, value in state["columns"].items()}
    rows = SampleBatch.from_layout(columns, state["layout"])
    if len(counts) == 1:
        return [rows]
    ends = np.cumsum(counts).tolist()
    return [rows[end - count : end].copy() for count, end in zip(counts, ends, strict=True)]


def _alike(items: Sequence[Any]) -> bool:
    """Whether joining the items loses nothing: same policies, columns, dtypes, shapes and padding."""
    first = _kind(items[0])
    return all(_kind(item) == first for item in items[1:])


def _kind(item: Any) -> Any:
    if isinstance(item, MultiAgentBatch):
        return {pid: _kind(rows) for pid, rows in item.policy_batches.items()}
    if item.time_major:
        return object()  # like no other: its rows are no slices
    columns = {key: map_nested(_kind_of_column, value) for key, value in item.items()}
    return item.max_seq_len if item.zero_padded else None, columns


def _kind_of_column(column: Any) -> tuple[str, tuple[int, ...]]:
    array = np.asarray(column)
    return array.dtype.str, array.shape[1:]


def _is_of_objects(column: Any) -> bool:
    """Whether a column holds dicts and the like, as `infos` does, which state has in lists."""
    return isinstance(column, np.ndarray) and column.dtype.hasobject


def _as_objects(values: list[Any]) -> Any:
    column = np.empty(len(values), object)
    column[:] = values
    return column
