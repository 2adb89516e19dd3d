"""Names that the user registers, as other processes of the program are told of them; the telling is not done here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_told: dict[tuple[str, str], Any] = {}
_publish: Callable[[str, str, Any], None] | None = None
_look_up: Callable[[str, str], Any] | None = None


def connect(publish: Callable[[str, str, Any], None], look_up: Callable[[str, str], Any]) -> None:
    """Takes what tells other processes of a name, and what asks for one that they registered.

    Args:
        publish: `fn(kind, name, value)`.
        look_up: `fn(kind, name)` that returns None for what nobody registered.
    """
    global _publish, _look_up
    _publish, _look_up = publish, look_up


def tell(kind: str, name: str, value: Any) -> None:
    """Notes that a name was registered in this process.

    Args:
        kind: "model", "action_dist", "preprocessor", "env" or "input".
        name: The name.
        value: A class or a function.
    """
    _told[kind, name] = value
    if _publish is not None:
        _publish(kind, name, value)


def told() -> dict[tuple[str, str], Any]:
    """Returns what was registered in this process, by kind and name."""
    return dict(_told)


def ask(kind: str, name: str) -> Any:
    """Returns what another process registered under a name, None if there is none, or nobody to ask."""
    return None if _look_up is None else _look_up(kind, name)


__all__ = ["ask", "connect", "tell", "told"]
