"""Policy classes made of functions: how each hook of `build_policy_class` becomes a method, in any framework."""

from __future__ import annotations

import copy
import inspect
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from rlframe.data.columns import OBS
from rlframe.data.sample_batch import SampleBatch
from rlframe.data.view_requirements import ViewRequirement
from rlframe.models.catalog import ModelCatalog
from rlframe.models.networks import giving_features
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.recurrent_context import can_be_seen_acting
from rlframe.utils.nested import merge_dicts, new_mixins

Hooks = dict[str, Any]
#: By hook: `fn(user's function) -> (name of the attribute, what becomes it)`.
Methods = Mapping[str, Callable[[Any], tuple[str, Any]]]


def build_class(name: str, hooks: Hooks, base: type[LearningPolicy], methods: Methods) -> type[Any]:
    """Returns a subclass of `base` with the given hooks as methods, mixins first."""
    hooks = {key: value for key, value in hooks.items() if value is not None}
    body: dict[str, Any] = {
        "__init__": _constructor(hooks, base),
        "__module__": __name__,
        "__doc__": f"{name}, made of hooks.",
        "_hooks": hooks,
        "_base": base,
    }
    for hook, maker in methods.items():
        if hook in hooks:
            method_name, method = maker(hooks[hook])
            body[method_name] = method
    if getattr(hooks.get("postprocess_fn"), "handles_many", False):
        body["postprocesses_many"] = True
    if getattr(hooks.get("extra_action_out_fn"), "only_values", False):
        body["wants_values"] = True
    return type(name, (*new_mixins(base, hooks.get("mixins")), base), body)


def derive_class(cls: type[Any], name: str | None, overrides: Hooks, methods: Methods) -> type[Any]:
    """Returns `cls` with hooks replaced: over its own hooks where it was made of some, on top of it otherwise."""
    if "_hooks" in cls.__dict__:
        hooks = {**cls.__dict__["_hooks"], **overrides}
        return build_class(name or cls.__name__, hooks, cls.__dict__["_base"], methods)
    return build_class(name or cls.__name__, overrides, cls, methods)


def _laid_on(defaults: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = merge_dicts(copy.copy(defaults), config)
    if "type" in (config.get("exploration_config") or {}):  # another type has other keys
        merged["exploration_config"] = config["exploration_config"]
    return merged


def _constructor(hooks: Hooks, base: type[LearningPolicy]) -> Any:
    # The framework's own class takes more than spaces and config; an algorithm's policy need not.
    takes = inspect.signature(base.__init__).parameters

    def construct(self: Any, obs_space: Any, action_space: Any, config: dict[str, Any]) -> None:
        if "get_default_config" in hooks:
            config = _laid_on(hooks["get_default_config"](), config)
        self.config = config
        self.observation_space, self.action_space = obs_space, action_space
        for moment in ("validate_spaces", "before_init"):
            if moment in hooks:
                hooks[moment](self, obs_space, action_space, config)
        options: dict[str, Any] = {}
        if "max_seq_len" in takes:
            options["max_seq_len"] = config.get("model", {}).get("max_seq_len", 20)
        self._first_run_waits = True
        base.__init__(self, obs_space, action_space, config, **options)
        if (multiple := hooks.get("get_batch_divisibility_req")) is not None:  # built-in policies do not take it
            self.batch_divisibility_req = multiple(self) if callable(multiple) else multiple
        self.view_requirements.update(_views_of_learning(self, hooks))
        for moment in ("before_loss_init", "_after_loss_init", "after_init"):
            if moment in hooks:
                hooks[moment](self, obs_space, action_space, config)
            if moment == "before_loss_init":
                self._first_run_waits = False
                self.run_first(again=True)
        self.global_timestep = 0

    return construct


def _views_of_learning(policy: Any, hooks: Hooks) -> dict[str, ViewRequirement]:
    """Returns the views of a hook; those that acting cannot have, such as the next observation, as learning's alone."""
    views: dict[str, ViewRequirement] = hooks.get("view_requirements_fn", lambda _: {})(policy)
    for name, view in views.items():
        view.used_for_compute_actions &= can_be_seen_acting(name, view)
    return views


def model_maker(check: Callable[[Any, str], None]) -> Methods:
    """Returns the methods for the two hooks that make models; `check(model, hook)` raises on a wrong one."""

    def make_model(function: Any) -> tuple[str, Any]:
        def make_model_and_dist(self: Any) -> tuple[Any, Any]:
            model = function(self, self.observation_space, self.action_space, self.config)
            check(model, "make_model")
            _by_model(self, model)
            config = self.config["model"]
            return model, ModelCatalog.get_action_dist(self.action_space, config, framework=self.framework)[0]

        return "make_model_and_dist", make_model_and_dist

    def make_both(function: Any) -> tuple[str, Any]:
        def make_model_and_dist(self: Any) -> tuple[Any, Any]:
            model, dist_class = function(self, self.observation_space, self.action_space, self.config)
            check(model, "make_model_and_action_dist")
            _by_model(self, model)
            return model, dist_class

        return "make_model_and_dist", make_model_and_dist

    return {"make_model": make_model, "make_model_and_action_dist": make_both}


def _by_model(policy: Any, model: Any) -> None:
    """Has a policy whose `target_model` was made with its model find it by that one, too, as RLlib 1.6 to 1.13."""
    if "target_model" in vars(policy):
        policy.target_models = {model: policy.target_model}


def _postprocess(function: Any) -> tuple[str, Any]:
    def postprocess_trajectory(
        self: Any, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
    ) -> SampleBatch:
        return function(self, sample_batch, other_agent_batches, episode)  # type: ignore[no-any-return]  # user code

    if getattr(function, "framework_free", False):
        postprocess_trajectory.framework_free = function  # type: ignore[attr-defined]  # a marker
    return "postprocess_trajectory", postprocess_trajectory


def _action_distribution(function: Any) -> tuple[str, Any]:
    # Programs of older releases define it as fn(policy, model, obs_batch, *, explore, ...).
    parameters = inspect.signature(function).parameters
    if "input_dict" in parameters:
        return "_action_distribution_fn", staticmethod(function)
    if _takes_any_number(function):  # a wrapper, of which either form may be behind
        return "_action_distribution_fn", staticmethod(_in_either_form(function))
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())

    def of_observations(policy: Any, model: Any, *, input_dict: Any, **given: Any) -> Any:
        accepted = {name: value for name, value in given.items() if takes_all or name in parameters}
        return function(policy, model, input_dict[OBS], **accepted)

    return "_action_distribution_fn", staticmethod(of_observations)


def _takes_any_number(function: Any) -> bool:
    """Returns whether a function takes any positional arguments, as wrappers do."""
    return any(given.kind is given.VAR_POSITIONAL for given in inspect.signature(function).parameters.values())


def _in_either_form(function: Any) -> Any:
    """Returns a hook that calls a wrapper with `input_dict`; what is behind it may refuse that for observations."""
    takes_a_dict = any(given.kind is given.VAR_KEYWORD for given in inspect.signature(function).parameters.values())

    def call(policy: Any, model: Any, *, input_dict: Any, **given: Any) -> Any:
        nonlocal takes_a_dict
        if takes_a_dict:
            try:
                return function(policy, model, input_dict=input_dict, **given)
            except TypeError as error:
                if not _refuses_arguments(error):
                    raise
                takes_a_dict = False
        known = {name: given[name] for name in ("explore", "timestep", "is_training")}
        return function(policy, model, input_dict[OBS], **known)

    return call


def _refuses_arguments(error: TypeError) -> bool:
    """Returns whether a wrapper's call of what is behind it failed, not what that did, which would be the program's."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    reasons = ("required positional argument", "unexpected keyword argument 'input_dict'")
    return bool(frame.f_code.co_flags & inspect.CO_VARARGS) and any(reason in str(error) for reason in reasons)


def _extra_action_out(function: Any) -> tuple[str, Any]:
    # TensorFlow's programs define it as fn(policy), torch's as fn(policy, input_dict, state_batches, model, dist).
    count = None if _takes_any_number(function) else len(inspect.signature(function).parameters) - 1

    def extra_action_out(self: Any, *arguments: Any) -> Any:
        return function(self, *arguments[: 0 if count is None and self.framework == "tf" else count])

    extra_action_out.only_values = getattr(function, "only_values", False)  # type: ignore[attr-defined]  # a marker
    return "extra_action_out", extra_action_out


def leave_as_in_rllib(policy: Any) -> None:
    """Leaves what a built-in loss tells where RLlib's losses did: there functions of a program's own look for it."""
    told = policy._loss_outputs
    left = {name: told[stat] for stat, names in policy.kept_names.items() if stat in told for name in names}
    policy.model.tower_stats.update(left)
    vars(policy).update({f"_{name}": value for name, value in left.items()})


def _stats(function: Any) -> Any:
    def extra_grad_info(self: Any, batch: Any) -> Any:
        leave_as_in_rllib(self)
        return function(self, batch)

    return "extra_grad_info", extra_grad_info


def _loss(function: Any) -> Any:
    def loss(self: Any, model: Any, dist_class: Any, batch: Any) -> Any:
        with giving_features(model):
            return function(self, model, dist_class, self.as_tensors(batch))

    return "loss", loss


#: Hooks that mean the same in every framework.
COMMON_METHODS: Methods = {
    "action_sampler_fn": lambda fn: ("_action_sampler_fn", staticmethod(fn)),
    "action_distribution_fn": _action_distribution,
    "loss_fn": _loss,
    "stats_fn": _stats,
    "extra_learn_fetches_fn": lambda fn: ("extra_compute_grad_fetches", lambda self: fn(self)),
    "optimizer_fn": lambda fn: ("optimizer", lambda self: fn(self, self.config)),
    "postprocess_fn": _postprocess,
    "extra_action_out_fn": _extra_action_out,
}
