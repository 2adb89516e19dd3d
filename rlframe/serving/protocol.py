"""What clients and servers of policies say to each other: JSON, in which arrays are packed text.

Nothing in a message is executed: it holds numbers, text, lists, dicts, arrays and spaces.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from rlframe.offline.json_format import pack, unpack
from rlframe.utils.errors import DataError
from rlframe.utils.spaces.old_gym import converted

#: Raised whenever messages change their meaning.
VERSION = 1
#: Where both sides find the token, if the program says none.
TOKEN_VARIABLE = "RLFRAME_POLICY_TOKEN"
#: Longest message that is read, in bytes.
MOST_BYTES = 512 * 2**20
_ARRAY, _PAIRS, _TUPLE, _SPACE = "__array__", "__pairs__", "__tuple__", "__space__"
_MARKS = frozenset({_ARRAY, _PAIRS, _TUPLE, _SPACE})


def dumps(value: Any) -> bytes:
    """Returns a message as bytes.

    Raises:
        DataError: If it holds something that has no form here.
    """
    return json.dumps(_plain(value, "")).encode()


def loads(text: bytes) -> Any:
    """Returns the message that `dumps` made bytes of.

    Raises:
        DataError: If it is none.
    """
    try:
        return _live(json.loads(text))
    except DataError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, AssertionError) as error:
        raise DataError(f"got a message that is none of a policy's client or server ({error})") from error


def shows_token(token: str | None, authorization: str | None) -> bool:
    """Returns whether a request's `Authorization` header shows the token, where there is one."""
    if token is None:
        return True
    return hmac.compare_digest((authorization or "").encode(), f"Bearer {token}".encode())


def is_loopback(address: str) -> bool:
    """Returns whether only programs of this machine reach what listens at an address."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _plain(value: Any, place: str) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value.item() if isinstance(value, np.generic) else value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype != object:
        return {_ARRAY: pack(value)}
    if isinstance(value, gym.Space):
        return {_SPACE: _plain_space(value, place)}
    if isinstance(value, Mapping):
        return _plain_mapping(value, place)
    if isinstance(value, tuple):
        return {_TUPLE: [_plain(item, f"{place}[{index}]") for index, item in enumerate(value)]}
    if isinstance(value, list):
        return [_plain(item, f"{place}[{index}]") for index, item in enumerate(value)]
    ours = converted(value)
    if ours is not value:
        return _plain(ours, place)
    where = f"{place.lstrip('.')}: " if place else ""
    raise DataError(
        f"{where}got {value!r:.80} ({type(value).__name__}), which cannot be sent; wanted numbers, text, arrays, "
        "lists, tuples or dicts of these"
    )


def _plain_mapping(value: Mapping[Any, Any], place: str) -> Any:
    if all(isinstance(key, str) for key in value) and not _MARKS & value.keys():
        return {key: _plain(item, f"{place}.{key}") for key, item in value.items()}
    return {_PAIRS: [[_plain(key, place), _plain(item, f"{place}.{key}")] for key, item in value.items()]}


def _plain_space(space: gym.Space[Any], place: str) -> dict[str, Any]:
    kind = type(space).__name__
    if isinstance(space, gym.spaces.Box):
        told: Any = [space.low, space.high, str(space.dtype)]
    elif isinstance(space, gym.spaces.Discrete):
        told = [int(space.n), int(space.start)]
    elif isinstance(space, gym.spaces.MultiDiscrete):
        told = [np.asarray(space.nvec), np.asarray(space.start), str(space.dtype)]
    elif isinstance(space, gym.spaces.MultiBinary):
        told = [space.n if isinstance(space.n, int) else list(space.n)]
    elif isinstance(space, gym.spaces.Dict):
        told = [[[key, part] for key, part in space.spaces.items()]]
    elif isinstance(space, gym.spaces.Tuple):
        told = [list(space.spaces)]
    else:
        raise DataError(
            f"got the space {space}, which cannot be sent; wanted a Box, Discrete, MultiDiscrete, MultiBinary, Dict or "
            "Tuple; with inference_mode='remote' spaces need not be sent"
        )
    return {"kind": kind, "told": _plain(told, place)}


def _live(value: Any) -> Any:
    if isinstance(value, list):
        return [_live(item) for item in value]
    if not isinstance(value, dict):
        return value
    mark = next(iter(value)) if len(value) == 1 else None
    if mark == _ARRAY:
        return np.asarray(unpack(value[mark]))
    if mark == _PAIRS:
        return {_hashable(_live(key)): _live(item) for key, item in value[mark]}
    if mark == _TUPLE:
        return tuple(_live(item) for item in value[mark])
    if mark == _SPACE:
        return _live_space(value[mark]["kind"], _live(value[mark]["told"]))
    return {key: _live(item) for key, item in value.items()}


def _hashable(key: Any) -> Any:
    return tuple(key) if isinstance(key, list) else key


def _live_space(kind: str, told: list[Any]) -> gym.Space[Any]:
    if kind == "Box":
        low, high, dtype = told
        return gym.spaces.Box(low, high, dtype=np.dtype(dtype).type)
    if kind == "Discrete":
        return gym.spaces.Discrete(told[0], start=told[1])
    if kind == "MultiDiscrete":
        nvec, start, dtype = told
        return gym.spaces.MultiDiscrete(nvec, dtype=np.dtype(dtype).type, start=start)
    if kind == "MultiBinary":
        return gym.spaces.MultiBinary(told[0])
    if kind == "Dict":
        return gym.spaces.Dict(dict(told[0]))
    if kind == "Tuple":
        return gym.spaces.Tuple(told[0])
    raise DataError(f"got a space of the kind {kind!r}, which is none of Gymnasium's")


__all__ = ["MOST_BYTES", "TOKEN_VARIABLE", "VERSION", "dumps", "is_loopback", "loads", "shows_token"]
