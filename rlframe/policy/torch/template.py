"""`build_policy_class` for torch: every hook becomes a method of a `TorchPolicy` subclass."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from rlframe.data.sample_batch import SampleBatch
from rlframe.models.catalog import ModelCatalog
from rlframe.models.torch.torch_modelv2 import TorchModelV2
from rlframe.policy.policy_template import check_hooks
from rlframe.policy.torch_policy import TorchPolicy
from rlframe.utils import merge_dicts

Hooks = dict[str, Any]


def build_class(name: str, hooks: Hooks, base: type[TorchPolicy] = TorchPolicy) -> type[TorchPolicy]:
    """Returns a subclass of `base` with the given hooks as methods, mixins first.

    Raises:
        TypeError: If a hook is unknown.
    """
    check_hooks(hooks)
    hooks = {key: value for key, value in hooks.items() if value is not None}
    body: dict[str, Any] = {
        "__init__": _constructor(hooks, base),
        "__module__": __name__,
        "__doc__": f"{name}, made of hooks.",
        "_hooks": hooks,
        "_base": base,
    }
    for hook, maker in _METHODS.items():
        if hook in hooks:
            method_name, method = maker(hooks[hook])
            body[method_name] = method
    if "postprocess_fn" in hooks:
        body["postprocesses_many"] = bool(getattr(hooks["postprocess_fn"], "handles_many", False))
        body["train_columns"] = None
    if "loss_fn" in hooks:
        body["train_columns"] = body["learn_columns"] = None  # a user's loss may read any column
    if getattr(hooks.get("extra_action_out_fn"), "only_values", False):
        body["wants_values"] = True
    return type(name, (*hooks.get("mixins", ()), base), body)


def derive_class(cls: type[TorchPolicy], name: str | None, overrides: Hooks) -> type[TorchPolicy]:
    """Returns `cls` with hooks replaced: over its own hooks where it was made of some, on top of it otherwise."""
    if "_hooks" in cls.__dict__:
        return build_class(name or cls.__name__, {**cls.__dict__["_hooks"], **overrides}, cls.__dict__["_base"])
    return build_class(name or cls.__name__, overrides, cls)


def _constructor(hooks: Hooks, base: type[TorchPolicy]) -> Any:
    def construct(self: Any, obs_space: Any, action_space: Any, config: dict[str, Any]) -> None:
        if "get_default_config" in hooks:
            config = merge_dicts(copy.copy(hooks["get_default_config"]()), config)
        self.config = config
        self.observation_space, self.action_space = obs_space, action_space
        for moment in ("validate_spaces", "before_init"):
            if moment in hooks:
                hooks[moment](self, obs_space, action_space, config)
        if base is TorchPolicy:
            TorchPolicy.__init__(
                self,
                obs_space,
                action_space,
                config,
                max_seq_len=config.get("model", {}).get("max_seq_len", 20),
                get_batch_divisibility_req=hooks.get("get_batch_divisibility_req"),
            )
        else:
            base.__init__(self, obs_space, action_space, config)
        for moment in ("before_loss_init", "_after_loss_init", "after_init"):
            if moment in hooks:
                hooks[moment](self, obs_space, action_space, config)
        self.global_timestep = 0

    return construct


def _make_model(function: Any) -> tuple[str, Any]:
    def make_model_and_dist(self: Any) -> tuple[Any, Any]:
        model = function(self, self.observation_space, self.action_space, self.config)
        check_torch_model(model, "make_model")
        dist_class, _ = ModelCatalog.get_action_dist(self.action_space, self.config["model"], framework="torch")
        return model, dist_class

    return "make_model_and_dist", make_model_and_dist


def _make_model_and_dist(function: Any) -> tuple[str, Any]:
    def make_model_and_dist(self: Any) -> tuple[Any, Any]:
        model, dist_class = function(self, self.observation_space, self.action_space, self.config)
        check_torch_model(model, "make_model_and_action_dist")
        return model, dist_class

    return "make_model_and_dist", make_model_and_dist


def check_torch_model(model: Any, source: str) -> None:
    """Raises unless `model` is both a `TorchModelV2` and an `nn.Module`.

    Raises:
        ValueError: Names the function that made it and what it made.
    """
    if not (isinstance(model, TorchModelV2) and isinstance(model, nn.Module)):
        raise ValueError(f"{source} returned {type(model).__name__}, wanted a TorchModelV2 that is also an nn.Module")


def _postprocess(function: Any) -> tuple[str, Any]:
    def postprocess_trajectory(
        self: Any, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
    ) -> SampleBatch:
        with torch.no_grad():
            return function(self, sample_batch, other_agent_batches, episode)  # type: ignore[no-any-return]  # user code

    if getattr(function, "framework_free", False):
        postprocess_trajectory.framework_free = function  # type: ignore[attr-defined]  # a marker
    return "postprocess_trajectory", postprocess_trajectory


def _extra_action_out(function: Any) -> tuple[str, Any]:
    def extra_action_out(self: Any, input_dict: Any, state_batches: Any, model: Any, action_dist: Any) -> Any:
        return function(self, input_dict, state_batches, model, action_dist)

    extra_action_out.only_values = getattr(function, "only_values", False)  # type: ignore[attr-defined]  # a marker
    return "extra_action_out", extra_action_out


def _apply_gradients(function: Any) -> tuple[str, Any]:
    def apply_gradients(self: Any, gradients: Any) -> None:
        for optimizer in self._optimizers:
            function(self, optimizer, gradients)

    return "apply_gradients", apply_gradients


_METHODS: dict[str, Any] = {
    "action_sampler_fn": lambda fn: ("_action_sampler_fn", staticmethod(fn)),
    "action_distribution_fn": lambda fn: ("_action_distribution_fn", staticmethod(fn)),
    "loss_fn": lambda fn: ("loss", lambda self, model, dist_class, batch: fn(self, model, dist_class, batch)),
    "stats_fn": lambda fn: ("extra_grad_info", lambda self, batch: fn(self, batch)),
    "extra_grad_process_fn": lambda fn: ("extra_grad_process", lambda self, opt, loss: fn(self, opt, loss)),
    "extra_learn_fetches_fn": lambda fn: ("extra_compute_grad_fetches", lambda self: fn(self)),
    "optimizer_fn": lambda fn: ("optimizer", lambda self: fn(self, self.config)),
    "compute_gradients_fn": lambda fn: ("compute_gradients", lambda self, batch: fn(self, batch)),
    "apply_gradients_fn": _apply_gradients,
    "postprocess_fn": _postprocess,
    "extra_action_out_fn": _extra_action_out,
    "make_model": _make_model,
    "make_model_and_action_dist": _make_model_and_dist,
}
