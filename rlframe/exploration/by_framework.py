"""Explorations of a program's own that choose by RLlib's methods for one framework."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

#: RLlib's names of what chooses actions in a framework, in the order in which they are looked for.
_BY_FRAMEWORK: Mapping[str | None, tuple[str, ...]] = {
    "torch": ("_get_torch_exploration_action", "get_torch_exploration_action"),
    "tf": ("_get_tf_exploration_action_op", "get_tf_exploration_action_op"),
}
_PARTS = frozenset(name for names in _BY_FRAMEWORK.values() for name in names)


def choose_by_users_code(cls: type[Any]) -> None:
    """Has a program's own class of explorations choose by what it overrides, and notes that it does."""
    if "get_exploration_action" not in cls.__dict__ and not _PARTS.isdisjoint(cls.__dict__):
        cls.get_exploration_action = _chosen_by_framework
    if "get_exploration_action" in cls.__dict__:
        cls._chooses_by_users_code = True


def _chosen_by_framework(
    self: Any, *, action_distribution: Any, timestep: int | None, explore: bool = True
) -> tuple[Any, Any]:
    """Returns what the user's part for the framework chooses; RLlib's explorations give it different arguments."""
    names = _BY_FRAMEWORK.get(self.framework, ())
    part = next((getattr(self, name) for name in names if hasattr(self, name)), None)
    if part is None:
        raise NotImplementedError(f"{type(self).__name__} chooses no actions in {self.framework}: wanted {names}")
    offered = {
        "q_values": action_distribution.inputs,
        "action_dist": action_distribution,
        "action_distribution": action_distribution,
        "explore": explore,
        "timestep": self.advance(timestep),
    }
    asked = inspect.signature(part).parameters
    chosen: tuple[Any, Any] = part(**{name: value for name, value in offered.items() if name in asked})
    return chosen
