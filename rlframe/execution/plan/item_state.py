"""States of plans: items that operators hold (numbers, arrays, batches, lists of them) as plain data, and operators."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

import numpy as np

from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.utils.errors import CheckpointError

_DROPPED = object()
_KEEPS: ContextVar[bool] = ContextVar("keeps_unknown_items", default=False)


@contextmanager
def kept_as_they_are() -> Iterator[None]:
    """Within, states hold items of any type as they are: for another plan in this process, and not to be written."""
    token = _KEEPS.set(True)
    try:
        yield
    finally:
        _KEEPS.reset(token)


def pack_item(item: Any, *, on_unknown: Literal["raise", "drop"] = "raise") -> Any:
    """Returns `item` as nested dicts with string keys, lists, arrays and scalars.

    Args:
        item: Scalars, strings, None, NumPy arrays and scalars, SampleBatch, MultiAgentBatch, and lists, tuples and
            dicts of them.
        on_unknown: "raise" refuses anything else; "drop" leaves it out of the list or dict that held it.

    Raises:
        CheckpointError: If something of another type is held and `on_unknown` is "raise".
    """
    packed = _pack(item, on_unknown)
    return None if packed is _DROPPED else packed


def _pack(item: Any, on_unknown: str) -> Any:
    if item is None or isinstance(item, (bool, int, float, str)):
        return item
    if isinstance(item, np.generic):
        return item.item()
    if isinstance(item, np.ndarray):
        return item if item.dtype != object else {"kind": "objects", "items": _pack_all(item.tolist(), on_unknown)}
    return _pack_container(item, on_unknown)


def _pack_container(item: Any, on_unknown: str) -> Any:
    if isinstance(item, MultiAgentBatch):
        policies = {str(pid): _pack(batch, on_unknown) for pid, batch in item.policy_batches.items()}
        return {"kind": "multi_agent_batch", "policies": policies, "env_steps": int(item.env_steps())}
    if isinstance(item, SampleBatch):
        return {"kind": "batch", **_pack_pairs(item, on_unknown), "layout": _pack_pairs(item.layout(), on_unknown)}
    if isinstance(item, dict):
        return {"kind": "dict", **_pack_pairs(item, on_unknown)}
    if isinstance(item, tuple):
        return {"kind": "tuple", "items": _pack_all(item, on_unknown)}
    if isinstance(item, list):
        return {"kind": "list", "items": _pack_all(item, on_unknown)}
    if _KEEPS.get():
        return {"kind": "kept", "item": item}
    if on_unknown == "drop":
        return _DROPPED
    raise CheckpointError(
        f"A plan is holding an item of type {type(item).__name__}, which cannot be saved; wanted numbers, strings, "
        "NumPy arrays, batches, or lists, tuples and dicts of them"
    )


def _pack_all(items: Any, on_unknown: str) -> list[Any]:
    return [packed for packed in (_pack(item, on_unknown) for item in items) if packed is not _DROPPED]


def _pack_pairs(pairs: Any, on_unknown: str) -> dict[str, Any]:
    """Packs a mapping as two lists, because state keys must be strings and user keys need not be."""
    keys, values = [], []
    for key, value in pairs.items():
        packed_key, packed = _pack(key, on_unknown), _pack(value, on_unknown)
        if packed_key is not _DROPPED and packed is not _DROPPED:
            keys.append(packed_key)
            values.append(packed)
    return {"keys": keys, "values": values}


def _items_of(state: dict[str, Any]) -> list[Any]:
    items = state["items"]
    if not isinstance(items, list):
        raise CheckpointError(f"An item that a plan held is a {type(items).__name__}, wanted a list of its parts")
    return items


def unpack_item(state: Any) -> Any:
    """Returns the item that `pack_item()` turned into `state`."""
    if isinstance(state, list):
        return [unpack_item(part) for part in state]
    if not isinstance(state, dict):
        return state
    kind = state.get("kind")
    if kind == "kept":
        return state["item"]
    if kind == "dict":
        return _unpack_pairs(state)
    if kind == "batch":
        columns = _unpack_pairs(state)
        if "layout" not in state:  # written before it was kept
            return SampleBatch(columns)
        return SampleBatch.from_layout(columns, _unpack_pairs(state["layout"]))
    if kind == "multi_agent_batch":
        return MultiAgentBatch({pid: unpack_item(b) for pid, b in state["policies"].items()}, state["env_steps"])
    if kind in ("tuple", "list", "objects"):
        return _unpack_sequence(kind, [unpack_item(part) for part in _items_of(state)])
    raise CheckpointError(f"Got saved item of kind {kind!r}, wanted one that pack_item() writes")


def _unpack_pairs(state: Any) -> dict[Any, Any]:
    return {unpack_item(k): unpack_item(v) for k, v in zip(state["keys"], state["values"], strict=True)}


def _unpack_sequence(kind: str, items: list[Any]) -> Any:
    if kind == "list":
        return items
    if kind == "tuple":
        return tuple(items)
    array = np.empty(len(items), dtype=object)
    for row, value in enumerate(items):  # a slice assignment would take equally long lists for a second dimension
        array[row] = value
    return array


def describe(operator: Any) -> tuple[str, str]:
    """Returns the name of an operator and its key arguments (`plan_args()`), for reports and saved states."""
    arguments = getattr(operator, "plan_args", None)
    name = getattr(operator, "plan_name", None) or getattr(operator, "__name__", None) or type(operator).__name__
    return str(name), str(arguments()) if callable(arguments) else ""


def operator_state(operator: Any) -> Any:
    """Returns `operator.get_state()` where the operator can also take it back, else None."""
    if hasattr(operator, "get_state") and hasattr(operator, "set_state"):
        return operator.get_state()
    return None


def restore_operator(operator: Any, state: Any) -> None:
    """Gives the operator its saved state, where it had one."""
    if state is not None:
        operator.set_state(state)


def close_operator(operator: Any) -> None:
    """Calls `operator.close()` where there is one: threads, actors and files that it holds end."""
    close = getattr(operator, "close", None)
    if callable(close):
        close()


def has_actor(item: Any) -> bool:
    """Returns whether an item is one of `zip_with_source_actor()`: its actor is another one after a restore."""
    actors = sys.modules.get("ray.actor")
    return actors is not None and isinstance(item, tuple) and any(isinstance(i, actors.ActorHandle) for i in item)
