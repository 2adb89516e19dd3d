"""Batches as lines of JSON, in RLlib 1.x's format.

A line is an object `{"type": "SampleBatch", column: values, ...}` or `{"type": "MultiAgentBatch", "count": env steps,
"policy_batches": {policy id: columns}}`. A column is a list, or packed into text: NumPy's own format, compressed with
zlib, in base64. RLlib 1.x packed pickles, compressed with LZ4; these are read as far as they hold arrays, and nothing
in them is executed.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import zlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import AGENT_INDEX, DONES, INFOS, TERMINATEDS, TRUNCATEDS
from rlframe.data.compression import unpack_leaf
from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.offline.array_pickles import MOST_BYTES, array_of_pickle, decompress_lz4
from rlframe.utils.errors import DataError

_LZ4_FRAME = b"\x04\x22\x4d\x18"
#: Key of a column that is a tuple of columns: a list would be one of rows.
_TUPLE = "__tuple__"
#: Column that says in each row whether actions are as policies choose them. RLlib 1.x reads it as one more column.
ACTIONS_NORMALIZED = "actions_normalized"
_FLAGS = (DONES, TERMINATEDS, TRUNCATEDS)


def to_line(batch: SampleBatch | MultiAgentBatch, compress_columns: Collection[str] = ()) -> str:
    """Returns a batch as a line of JSON, without the line's end.

    Values in `infos` that JSON has no form for are written as text.

    Args:
        batch: The batch.
        compress_columns: Columns that are packed.

    Raises:
        DataError: If another column holds what JSON has no form for.
    """
    if isinstance(batch, MultiAgentBatch):
        parts = {pid: _columns_as_json(part, compress_columns) for pid, part in batch.policy_batches.items()}
        return json.dumps({"type": "MultiAgentBatch", "count": batch.env_steps(), "policy_batches": parts})
    return json.dumps({"type": "SampleBatch", **_columns_as_json(batch, compress_columns)})


def as_text(batch: SampleBatch | MultiAgentBatch) -> str:
    """Returns a batch as `to_line` does, with all columns packed: `from_line` gives back their dtypes, too."""
    parts = batch.policy_batches.values() if isinstance(batch, MultiAgentBatch) else [batch]
    return to_line(batch, {name for part in parts for name in part})


def from_line(line: str | bytes) -> SampleBatch | MultiAgentBatch:
    """Returns the batch that a line of JSON holds; its arrays are float32, int64 or bool, unless they were packed.

    Raises:
        DataError: If the line holds no batch.
    """
    try:
        given = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"no JSON ({error})") from error
    if not isinstance(given, dict):
        raise DataError(f'got {type(given).__name__}, wanted an object with "type" and columns')
    return batch_of_row(given)


def batch_of_row(row: Mapping[str, Any]) -> SampleBatch | MultiAgentBatch:
    """Returns the batch that a line's object describes.

    Raises:
        DataError: If it describes none.
    """
    given = dict(row)
    kind = given.pop("type", None)
    if kind == "SampleBatch":
        return _batch_of(given)
    if kind == "MultiAgentBatch":
        parts = given.get("policy_batches")
        if not isinstance(parts, dict) or not isinstance(given.get("count"), int):
            raise DataError('a MultiAgentBatch without "count" and "policy_batches"')
        return MultiAgentBatch({pid: _batch_of(columns) for pid, columns in parts.items()}, given["count"])
    raise DataError(f'"type" is {kind!r}, wanted "SampleBatch" or "MultiAgentBatch"')


def saying(batch: SampleBatch | MultiAgentBatch, normalized: bool) -> SampleBatch | MultiAgentBatch:
    """Returns a batch that says whether its actions are as policies choose them; see `take_normalized`."""
    if isinstance(batch, MultiAgentBatch):
        parts = {pid: _with_note(part, normalized) for pid, part in batch.policy_batches.items()}
        return MultiAgentBatch(parts, batch.env_steps())
    return _with_note(batch, normalized)


def _with_note(batch: SampleBatch, normalized: bool) -> SampleBatch:
    return batch._like({**batch, ACTIONS_NORMALIZED: np.full(batch.count, normalized, np.int8)})


def take_normalized(batch: SampleBatch | MultiAgentBatch) -> bool | None:
    """Takes the column out of a batch that says whether actions are as policies choose them; None without one.

    Raises:
        DataError: If rows say different things.
    """
    parts = batch.policy_batches.values() if isinstance(batch, MultiAgentBatch) else [batch]
    notes = [np.asarray(part.pop(ACTIONS_NORMALIZED)).reshape(-1) for part in parts if ACTIONS_NORMALIZED in part]
    said = {bool(value) for note in notes for value in np.unique(note)}
    if len(said) > 1:
        raise DataError(
            f"{ACTIONS_NORMALIZED}: got rows with True and rows with False in one batch, wanted one of them; write "
            "batches of both kinds apart"
        )
    return said.pop() if said else None


def pack(array: NDArray[Any]) -> str:
    """Returns an array of numbers as compressed text."""
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, allow_pickle=False)
    return base64.b64encode(zlib.compress(buffer.getvalue(), 1)).decode("ascii")


def unpack(text: str | bytes) -> Any:
    """Returns the array that was packed, here or by RLlib 1.x; of the latter also dicts, tuples and lists of arrays.

    Raises:
        DataError: If the text is neither, or is a pickle of something else than arrays.
    """
    try:
        raw = base64.b64decode(text, validate=True)
        if raw.startswith(_LZ4_FRAME):
            return array_of_pickle(decompress_lz4(raw))
        stream = zlib.decompressobj()
        plain = stream.decompress(raw, MOST_BYTES)
        if stream.unconsumed_tail:
            raise DataError(f"a packed array of more than {MOST_BYTES} bytes; write shorter batches")
        return np.lib.format.read_array(io.BytesIO(plain), allow_pickle=False)
    except DataError:
        raise
    except (binascii.Error, zlib.error, ValueError, MemoryError) as error:
        raise DataError(f"text that holds no packed array ({error})") from error


def _columns_as_json(batch: SampleBatch, compress_columns: Collection[str]) -> dict[str, Any]:
    made = {}
    for name, column in batch.items():
        made[name] = _column_as_json(name, column, name in compress_columns)
    return made


def _column_as_json(name: str, column: Any, packed: bool) -> Any:
    if isinstance(column, Mapping):
        return {key: _column_as_json(name, part, packed) for key, part in column.items()}
    if isinstance(column, tuple):
        return {_TUPLE: [_column_as_json(name, part, packed) for part in column]}
    return _leaf_as_json(name, column, packed)


def _leaf_as_json(name: str, leaf: Any, packed: bool) -> Any:
    array = np.asarray(unpack_leaf(leaf))
    if array.dtype.hasobject:
        return plain_values(name, array)
    return pack(array) if packed else array.tolist()


def plain_values(name: str, column: NDArray[Any]) -> list[Any]:
    """Returns a column's objects as JSON has them; of `infos`, what it has no form for is made text.

    Raises:
        DataError: If another column holds what JSON has no form for.
    """
    as_text = str if name == INFOS else None
    return [_plain(name, value, as_text) for value in column.tolist()]


def _plain(name: str, value: Any, as_text: Any) -> Any:
    """Returns a value as JSON has it."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, (np.ndarray, np.generic)) and not value.dtype.hasobject:
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(name, item, as_text) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(name, item, as_text) for item in value]
    if as_text is None:
        raise DataError(
            f"column {name!r}: got a {type(value).__name__}, which JSON has no form for; take the column out of the "
            "batch, or write numbers"
        )
    return as_text(value)


def _batch_of(columns: Any) -> SampleBatch:
    if not isinstance(columns, dict) or not columns:
        raise DataError("a batch without columns")
    made = {}
    for name, values in columns.items():
        if isinstance(values, list) and values and all(value is None for value in values):
            continue  # demonstrations written by hand say so of what they do not know, `action_dist_inputs` above all
        try:
            # In rows of a dataset of Ray, lists have become arrays.
            made[name] = _column_of(name, values.tolist() if isinstance(values, np.ndarray) else values)
        except (ValueError, TypeError) as error:
            raise DataError(f"column {name!r}: {error}") from error
    try:
        return SampleBatch(made)
    except ValueError as error:
        raise DataError(str(error)) from error


def _column_of(name: str, values: Any) -> Any:
    if isinstance(values, str):
        return unpack(values)
    if isinstance(values, dict) and values.keys() == {_TUPLE}:
        return tuple(_column_of(name, part) for part in values[_TUPLE])
    if isinstance(values, dict):
        return {key: _column_of(name, part) for key, part in values.items()}
    if not isinstance(values, list):
        raise DataError(f"got {values!r}, wanted a list of values")
    if name == INFOS:
        infos = np.empty(len(values), dtype=object)
        infos[:] = values
        return infos
    if values and isinstance(values[0], str):
        return _column_of_texts(values)
    array = np.asarray(values)
    if array.dtype.hasobject:
        raise DataError("rows of several shapes, or that are no numbers")
    if name in _FLAGS:
        return array.astype(bool)
    if name == AGENT_INDEX:
        return array.astype(np.int64)
    return array.astype(np.float32) if array.dtype.kind == "f" else array


def _column_of_texts(values: list[str]) -> NDArray[Any]:
    """Returns the arrays of a column that RLlib packed row by row; words as they are."""
    try:
        return np.stack([unpack(value) for value in values])
    except DataError:
        return np.asarray(values)


__all__ = [
    "ACTIONS_NORMALIZED",
    "as_text",
    "batch_of_row",
    "from_line",
    "pack",
    "plain_values",
    "saying",
    "take_normalized",
    "to_line",
    "unpack",
]
