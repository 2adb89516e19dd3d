"""Notices parts of a policy that a program has replaced behind what was made of them: NumPy actors, gradients by hand.

Neither reads a model's layers as the model's own forward pass does, so that a layer, a parameter, a hook or a `forward`
that a program puts into a model would be passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlframe.policy.acting_parts import numpy_distribution
from rlframe.policy.inference import PartsInUse
from rlframe.policy.users_code import overridden_by_user


def notice(policy: Any) -> None:
    """Does without what was made for parts in whose places a program has put its own: model, layers, distribution.

    Called when the outermost constructor is through, hooks of the user's own included, and when something has changed.

    Args:
        policy: A policy with a framework.
    """
    parts: PartsInUse | None = policy.parts_in_use
    if parts is None:
        _notice_first(policy)
        return
    if policy.dist_class is not parts.dist_class:
        policy.numpy_dist = numpy_distribution(policy)
    policy.without_autograd = None
    policy.model_altered = parts.altered() or (policy.model_altered and policy.model is parts.model)
    policy.parts_in_use = _in_use(policy)
    policy.forget_traces()
    policy.choose_inference()


def _notice_first(policy: Any) -> None:
    if policy.built_with is None:  # its constructor did not call that of the framework's policies
        return
    model, dist_class = policy.built_with
    if policy.dist_class is not dist_class:
        policy.numpy_dist = None
    policy.model_altered = forward_is_watched(policy.model)
    if policy.dist_class is not dist_class or policy.model is not model or policy.model_altered:
        policy.without_autograd = None
    policy.parts_in_use = _in_use(policy)


def _in_use(policy: Any) -> PartsInUse:
    layers = list(_layers(policy.model))
    parts = [pair for layer in layers for pair in _held(layer)]
    hooks = [table for layer in layers for table in _hooks(layer)]
    return PartsInUse(policy, parts, hooks, [vars(layer) for layer in layers])


def forward_is_watched(model: Any) -> bool:
    """Returns whether a program has put a `forward` or PyTorch's hooks into a model, or gave it a `__call__`."""
    own_call = overridden_by_user(type(model), "__call__")
    return own_call or any("forward" in vars(layer) or any(_hooks(layer)) for layer in _layers(model))


def _layers(model: Any) -> Iterator[Any]:
    """Yields the model, and a torch model's layers of all depths."""
    yield model
    modules = getattr(model, "modules", None)
    if callable(modules):
        yield from (layer for layer in modules() if layer is not model)


def _hooks(layer: Any) -> Iterator[Mapping[Any, Any]]:
    """Yields what PyTorch calls around a layer's forward pass."""
    for name in ("_forward_hooks", "_forward_pre_hooks"):
        hooks = getattr(layer, name, None)
        if isinstance(hooks, Mapping):
            yield hooks


def _held(layer: Any) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yields where a layer holds its parameters and layers: `(table, key)`; Keras's are attributes."""
    attributes = vars(layer)
    for name in ("_parameters", "_modules"):
        table = attributes.get(name)
        if isinstance(table, dict):
            yield from ((table, key) for key in table)
    if "base_model" in attributes:
        yield from ((attributes, key) for key, part in attributes.items() if hasattr(part, "trainable_variables"))
