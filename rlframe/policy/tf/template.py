"""`build_tf_policy`: every hook becomes a method of a `TFPolicy` subclass."""

from __future__ import annotations

import inspect
from typing import Any

from rlframe.models.tf.tf_modelv2 import TFModelV2
from rlframe.policy import hooks as shared
from rlframe.policy.hook_names import check_tf_hooks
from rlframe.policy.learning_policy import LearningPolicy


def build_class(name: str, hooks: shared.Hooks, base: type[LearningPolicy]) -> type[Any]:
    """Returns a subclass of `base` with the given hooks as methods, mixins first.

    Raises:
        TypeError: If a hook is unknown.
        ValueError: If hooks contradict each other.
    """
    check_tf_hooks(hooks, needs_model=False)
    return shared.build_class(name, hooks, base, _METHODS)


def derive_class(cls: type[Any], name: str | None, overrides: shared.Hooks) -> type[Any]:
    """Returns `cls` with hooks replaced: over its own hooks where it was made of some, on top of it otherwise."""
    check_tf_hooks(overrides, needs_model=False)
    return shared.derive_class(cls, name, overrides, _METHODS)


def check_tf_model(model: Any, source: str) -> None:
    """Raises unless `model` is a `TFModelV2`.

    Raises:
        ValueError: Names the function that made it and what it made.
    """
    if not isinstance(model, TFModelV2):
        raise ValueError(f"{source} returned {type(model).__name__}, wanted a TFModelV2")


def _action_sampler(function: Any) -> tuple[str, Any]:
    """TensorFlow's programs take some of a dozen keywords; torch's take four arguments in a row, and two keywords."""
    parameters = inspect.signature(function).parameters.values()
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    named = {p.name for p in parameters}

    def sample(policy: Any, model: Any, batch: Any, states: Any, explore: bool, timestep: int) -> Any:
        if "state_batches" in positional[:4] and "explore" in positional[:5] and "obs_batch" not in positional:
            return function(policy, model, batch, states, explore=explore, timestep=timestep)
        offered = {
            "obs_batch": batch["obs"],
            "input_dict": batch,
            "state_batches": states,
            "seq_lens": None,
            "prev_action_batch": batch.get("prev_actions"),
            "prev_reward_batch": batch.get("prev_rewards"),
            "explore": explore,
            "timestep": timestep,
            "is_training": False,
            "episodes": None,
        }
        if not takes_all:
            offered = {name: value for name, value in offered.items() if name in named}
        return function(policy, model, **offered)

    return "_action_sampler_fn", staticmethod(sample)


def _gradients(function: Any) -> tuple[str, Any]:
    return "gradients", lambda self, optimizer, loss: function(self, optimizer, loss)


def _apply_gradients(function: Any) -> tuple[str, Any]:
    def apply_optimizer(self: Any, optimizer: Any, grads_and_vars: Any) -> None:
        function(self, optimizer, grads_and_vars)

    return "apply_optimizer", apply_optimizer


_METHODS: shared.Methods = {
    **shared.COMMON_METHODS,
    **shared.model_maker(check_tf_model),
    "action_sampler_fn": _action_sampler,
    "compute_gradients_fn": _gradients,
    "gradients_fn": _gradients,
    "apply_gradients_fn": _apply_gradients,
    "grad_stats_fn": lambda fn: ("grad_stats", lambda self, batch, gradients: fn(self, batch, gradients)),
}
