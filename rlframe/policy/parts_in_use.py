"""What a policy's NumPy actor and gradients by hand were made of; `own_parts` acts on what a program replaces of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class PartsInUse:
    """A policy's model and distribution as they were, and what the model was made of.

    Args:
        policy: A policy with a framework.
        parts: `(table, key)` of the parameters and layers.
        hooks: Tables of what is called around layers' forward passes; empty where nothing is.
        attributes: Those of each layer.
    """

    def __init__(
        self, policy: Any, parts: Sequence[tuple[Any, str]], hooks: Sequence[Any], attributes: Sequence[Any]
    ) -> None:
        self.model, self.dist_class = policy.model, policy.dist_class
        self._parts = [(table, key, table[key]) for table, key in parts]
        self._hooks, self._attributes = hooks, attributes

    def changed(self, policy: Any) -> bool:
        """Returns whether the policy has another model or distribution, or the model computes otherwise."""
        # While several devices compute, their threads put copies in the model's place.
        another = policy.model is not self.model and len(policy.model_gpu_towers) < 2
        return another or policy.dist_class is not self.dist_class or (not policy.model_altered and self.altered())

    def altered(self) -> bool:
        """Returns whether the model has other layers, parameters, hooks or another `forward` than it had."""
        return (
            any(self._hooks)
            or any("forward" in attributes for attributes in self._attributes)
            or any(table.get(key) is not part for table, key, part in self._parts)
        )
