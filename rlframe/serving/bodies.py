"""Observations and actions in the bodies of requests: plain JSON, npy and npz, each held against its space."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlframe.utils.errors import DataError

#: Longest body that is read, and most bytes that one may unpack to.
MOST_BODY_BYTES = 64 * 2**20


def as_observation(space: gym.Space[Any], value: Any, place: str = "observation") -> Any:
    """Returns one observation of a space, of what JSON or arrays hold.

    Args:
        space: The environment's.
        value: Lists, numbers, dicts, arrays.
        place: Where it stands, for messages.

    Raises:
        DataError: If it is none; says where, what there is and what is wanted.
    """
    if isinstance(space, gym.spaces.Dict):
        if not isinstance(value, Mapping) or set(value) != set(space.spaces):
            got = sorted(map(str, value)) if isinstance(value, Mapping) else f"a {type(value).__name__}"
            raise DataError(f"{place}: got {got}, wanted an object with the keys {sorted(space.spaces)}")
        return {key: as_observation(part, value[key], f"{place}.{key}") for key, part in space.spaces.items()}
    if isinstance(space, gym.spaces.Tuple):
        if not isinstance(value, list | tuple) or len(value) != len(space.spaces):
            got = f"{len(value)} parts" if isinstance(value, list | tuple) else f"a {type(value).__name__}"
            raise DataError(f"{place}: got {got}, wanted a list of {len(space.spaces)} parts")
        return tuple(as_observation(part, value[i], f"{place}[{i}]") for i, part in enumerate(space.spaces))
    if space.shape is None:  # text and the like
        return value
    return _array(space, value, place)


def _array(space: gym.Space[Any], value: Any, place: str) -> Any:
    dtype = np.dtype(space.dtype)
    wanted = f"wanted numbers of shape {space.shape}, {dtype}"
    try:
        given = np.asarray(value)
    except ValueError as error:
        raise DataError(f"{place}: got lists of unequal lengths, {wanted}") from error
    if given.dtype.kind not in "biuf":
        raise DataError(f"{place}: got {value!r:.60} ({type(value).__name__}), {wanted}")
    if given.shape != space.shape:
        raise DataError(f"{place}: got shape {given.shape}, {wanted}")
    if dtype.kind == "f":
        return given.astype(dtype, copy=False)
    with np.errstate(invalid="ignore"):
        whole = given.astype(dtype)
    if not np.array_equal(whole, given):
        raise DataError(f"{place}: got {given.tolist()!r:.60}, {wanted}")
    if isinstance(space, gym.spaces.Discrete) and not space.contains(whole):
        raise DataError(f"{place}: got {whole}, wanted {space.start} to {space.start + space.n - 1}")
    return whole if whole.shape else whole[()]


def rows_of_npy(space: gym.Space[Any], body: bytes) -> tuple[list[Any], bool]:
    """Returns the observations in an npy file, and whether it is one alone, without a batch dimension.

    Raises:
        DataError: If it is no such file, or has another shape.
    """
    if isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
        raise DataError("got an npy body, wanted npz or JSON: the observation has several parts")
    array = _read_npy(body, "body")
    single = array.shape == space.shape
    if not single and array.shape[1:] != space.shape:
        raise DataError(f"body: got shape {array.shape}, wanted {space.shape}, or several rows of that")
    return ([array] if single else list(array)), single


def rows_of_npz(space: gym.Space[Any], body: bytes) -> tuple[list[Any], bool]:
    """Returns the observations in an npz file, and whether it is one alone, without a batch dimension.

    An array is named by the keys or numbers that lead to it, with slashes between them.

    Raises:
        DataError: If it is no such file, an array is missing or too much, or their lengths differ.
    """
    arrays = _read_npz(body)
    leaves = dict(_leaves(space, ""))
    if set(arrays) != set(leaves):
        raise DataError(f"body: got the arrays {sorted(arrays)}, wanted {sorted(leaves)}")
    if all(arrays[name].shape == leaf.shape for name, leaf in leaves.items()):
        return [_nested(space, arrays, "")], True
    lengths = {len(array) if array.shape else 0 for array in arrays.values()}
    if len(lengths) != 1:
        raise DataError(f"body: got {sorted(lengths)} rows in its arrays, wanted as many in each")
    rows = [{name: array[row] for name, array in arrays.items()} for row in range(lengths.pop())]
    return [_nested(space, row, "") for row in rows], False


def _leaves(space: gym.Space[Any], place: str) -> list[tuple[str, gym.Space[Any]]]:
    if isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
        return [leaf for key, part in _parts(space) for leaf in _leaves(part, f"{place}/{key}")]
    return [(place.lstrip("/") or "obs", space)]


def _parts(space: Any) -> list[tuple[Any, gym.Space[Any]]]:
    return list(space.spaces.items() if isinstance(space, gym.spaces.Dict) else enumerate(space.spaces))


def _nested(space: gym.Space[Any], arrays: Mapping[str, Any], place: str) -> Any:
    if isinstance(space, gym.spaces.Dict):
        return {key: _nested(part, arrays, f"{place}/{key}") for key, part in _parts(space)}
    if isinstance(space, gym.spaces.Tuple):
        return tuple(_nested(part, arrays, f"{place}/{key}") for key, part in _parts(space))
    return arrays[place.lstrip("/") or "obs"]


def _read_npz(body: bytes) -> dict[str, NDArray[Any]]:
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            total = sum(member.file_size for member in archive.infolist())
            if total > MOST_BODY_BYTES:
                raise DataError(f"body: its arrays take {total} bytes, wanted at most {MOST_BODY_BYTES}")
            names = archive.namelist()
            return {name.removesuffix(".npy"): _read_npy(archive.read(name), name) for name in names}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise DataError(f"body: got no npz file ({error})") from error


def _read_npy(raw: bytes, place: str) -> NDArray[Any]:
    stream = io.BytesIO(raw)
    try:
        major, _ = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(stream)
        # What the header promises is held against what there is, before memory is taken for it.
        if dtype.kind not in "biuf" or math.prod(shape) * dtype.itemsize != len(raw) - stream.tell():
            raise DataError(f"{place}: got an array of {dtype} {shape} in {len(raw)} bytes, wanted whole, of numbers")
        stream.seek(0)
        return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))
    except DataError:
        raise
    except (ValueError, SyntaxError, TypeError) as error:
        raise DataError(f"{place}: got no npy file ({error})") from error


def as_npy(actions: list[Any], single: bool) -> bytes:
    """Returns actions as an npy file; several have a batch dimension.

    Raises:
        DataError: If actions have several parts.
    """
    if any(isinstance(action, tuple | Mapping) for action in actions):
        raise DataError("the action has several parts, which npy has no form for; wanted Accept: application/json")
    stream = io.BytesIO()
    array = np.asarray(actions[0]) if single else np.stack([np.asarray(action) for action in actions])
    np.lib.format.write_array(stream, array, allow_pickle=False)
    return stream.getvalue()


def as_json(action: Any) -> Any:
    """Returns an action as numbers, lists and dicts."""
    if isinstance(action, Mapping):
        return {key: as_json(part) for key, part in action.items()}
    if isinstance(action, tuple):
        return [as_json(part) for part in action]
    return np.asarray(action).tolist()


__all__ = ["MOST_BODY_BYTES", "as_json", "as_npy", "as_observation", "rows_of_npy", "rows_of_npz"]
