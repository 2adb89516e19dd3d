"""`build_policy_class` for torch: every hook becomes a method of a `TorchPolicy` subclass."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from rlframe.data.sample_batch import SampleBatch
from rlframe.models.torch.torch_modelv2 import TorchModelV2
from rlframe.policy import hooks as shared
from rlframe.policy.hook_names import check_hooks
from rlframe.policy.learning_policy import LearningPolicy


def build_class(name: str, hooks: shared.Hooks, base: type[LearningPolicy]) -> type[Any]:
    """Returns a subclass of `base` with the given hooks as methods, mixins first.

    Raises:
        TypeError: If a hook is unknown.
    """
    check_hooks(hooks)
    return shared.build_class(name, hooks, base, _METHODS)


def derive_class(cls: type[Any], name: str | None, overrides: shared.Hooks) -> type[Any]:
    """Returns `cls` with hooks replaced: over its own hooks where it was made of some, on top of it otherwise."""
    check_hooks(overrides)
    return shared.derive_class(cls, name, overrides, _METHODS)


def check_torch_model(model: Any, source: str) -> None:
    """Raises unless `model` is both a `TorchModelV2` and an `nn.Module`.

    Raises:
        ValueError: Names the function that made it and what it made.
    """
    if not (isinstance(model, TorchModelV2) and isinstance(model, nn.Module)):
        raise ValueError(f"{source} returned {type(model).__name__}, wanted a TorchModelV2 that is also an nn.Module")


def _postprocess(function: Any) -> tuple[str, Any]:
    name, method = shared.COMMON_METHODS["postprocess_fn"](function)

    def postprocess_trajectory(
        self: Any, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
    ) -> SampleBatch:
        with torch.no_grad():
            return method(self, sample_batch, other_agent_batches, episode)  # type: ignore[no-any-return]  # user code

    postprocess_trajectory.__dict__.update(method.__dict__)
    return name, postprocess_trajectory


def _stats(function: Any) -> tuple[str, Any]:
    def extra_grad_info(self: Any, train_batch: SampleBatch) -> dict[str, Any]:
        shared.leave_as_in_rllib(self)
        with torch.no_grad():  # so `policy.q_t.clone().numpy()` works, as in RLlib
            return function(self, train_batch)  # type: ignore[no-any-return]  # user code

    return "extra_grad_info", extra_grad_info


def _optimizer(function: Any) -> tuple[str, Any]:
    def optimizer(self: Any) -> list[Any]:
        made = function(self, self.config)
        return list(made) if isinstance(made, (list, tuple)) else [made]

    return "optimizer", optimizer


def _apply_gradients(function: Any) -> tuple[str, Any]:
    def apply_gradients(self: Any, gradients: Any) -> None:
        function(self, gradients)

    def apply_each(self: Any, gradients: Any) -> None:
        for optimizer in self._optimizers:
            function(self, optimizer, gradients)

    def apply_kept(self: Any, gradients: Any) -> None:
        del gradients  # the parameters have them
        function(self)

    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return "apply_gradients", apply_gradients
    wanted = [
        parameter
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    return "apply_gradients", {1: apply_kept, _WITH_OPTIMIZER: apply_each}.get(len(wanted), apply_gradients)


#: How many arguments functions for gradients have that are called with each optimiser: fn(policy, optimizer, grads).
_WITH_OPTIMIZER = 3


_METHODS: shared.Methods = {
    **shared.COMMON_METHODS,
    **shared.model_maker(check_torch_model),
    "optimizer_fn": _optimizer,
    "stats_fn": _stats,
    "extra_grad_process_fn": lambda fn: ("extra_grad_process", lambda self, opt, loss: fn(self, opt, loss)),
    "compute_gradients_fn": lambda fn: ("compute_gradients", lambda self, batch: fn(self, batch)),
    "apply_gradients_fn": _apply_gradients,
    "postprocess_fn": _postprocess,
}
