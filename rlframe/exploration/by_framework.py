"""Explorations of a program's own that choose by RLlib's methods for one framework."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.data.nested import map_nested
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor

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
    own = [name for name in names if not _is_from_here(_definer(type(self), name))]
    if not own and (not names or _built_in(type(self)).__name__ == "Exploration"):
        raise NotImplementedError(f"{type(self).__name__} chooses no actions in {self.framework}: wanted {names}")
    offered = {
        "q_values": action_distribution.inputs,
        "action_dist": action_distribution,
        "action_distribution": action_distribution,
        "explore": explore,
        "timestep": self.advance(timestep),
    }
    if not own:
        return chosen_by_itself(self, **offered)
    part = getattr(self, own[0])
    asked = inspect.signature(part).parameters
    chosen: tuple[Any, Any] = part(**{name: value for name, value in offered.items() if name in asked})
    return chosen


def _definer(cls: type[Any], name: str) -> type[Any]:
    """Returns the class among the ancestors that a method is found in."""
    return next(base for base in cls.__mro__ if name in vars(base))


def _is_from_here(cls: type[Any]) -> bool:
    return cls.__module__.startswith("rlframe.exploration.")


def _built_in(cls: type[Any]) -> type[Any]:
    """Returns the nearest class that chooses, and is none of a program's own."""
    return next(base for base in cls.__mro__ if "get_exploration_action" in vars(base) and _is_from_here(base))


class _Values:
    """Values of actions `[B, A]`, as the distribution that takes the best of them."""

    def __init__(self, inputs: Tensor) -> None:
        self.inputs = inputs

    def deterministic_sample(self) -> Tensor:
        """Returns the best actions, integers `[B]`."""
        return ops.argmax(self.inputs, 1)


def chosen_by_itself(exploration: Any, *given: Any, **named: Any) -> tuple[Any, Any]:
    """Returns what an exploration chooses without a program's own code: actions and their log-likelihoods.

    Args:
        exploration: The exploration.
        *given: What RLlib's method of its class is given, in its order: see `Exploration.part_arguments`.
        **named: The same, by name. They are tensors where the distribution's inputs, or the values, are.
    """
    asked = {**dict(zip(exploration.part_arguments, given, strict=False)), **named}
    made = asked.get("action_dist", asked.get("action_distribution"))
    distribution = _Values(asked["q_values"]) if made is None else made
    actions, logp = _built_in(type(exploration)).get_exploration_action(
        exploration,
        action_distribution=distribution,
        timestep=asked.get("timestep"),
        explore=bool(asked.get("explore", True)),
    )
    like = distribution.inputs
    if isinstance(like, np.ndarray):
        return actions, logp
    return map_nested(lambda leaf: ops.tensor_like(leaf, like), actions), ops.tensor_like(logp, like)
