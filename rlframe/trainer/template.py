"""Trainer classes from functions: a config, a policy, a plan, and hooks around them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, cast

from rlframe.config.builder import TRAINERS
from rlframe.config.common import CommonConfig
from rlframe.trainer.iterating import METHODS
from rlframe.trainer.setup import NoPolicyError, call_by_signature, has_all_classes, import_path, take_tensorflow
from rlframe.trainer.trainer import Trainer
from rlframe.utils.errors import ConfigError
from rlframe.utils.nested import new_mixins

_LOGGER = logging.getLogger(__name__)

if TYPE_CHECKING:
    from rlframe.config.options import AlgorithmConfig

#: Functions around an iteration, as `build_trainer` of RLlib before 1.0 took them: (trainer), (trainer, learner infos
#: by policy id), (trainer, result).
STEP_HOOKS = ("before_train_step", "after_optimizer_step", "after_train_result")
#: Keyword arguments of `build_trainer`.
ARGUMENTS = (
    "name",
    "default_config",
    "config_class",
    "validate_config",
    "default_policy",
    "policies",
    "get_policy_class",
    "validate_env",
    "before_init",
    "after_init",
    "before_evaluate_fn",
    "mixins",
    "execution_plan",
    "allow_unknown_configs",
    "allow_unknown_subkeys",
    "override_all_subkeys_if_type_changes",
    *STEP_HOOKS,
)


def build_trainer(name: str, **arguments: Any) -> type[Trainer]:
    """Returns a trainer class made from functions.

    Args:
        name: Name of the algorithm and of the class; used in log directories and checkpoints.
        **arguments: Any of the following; those left out keep the default.

            * `default_config`: dict of defaults. Keys of your own are allowed in it, and then in users' configs.
            * `config_class`: declaration of the keys (an `AlgorithmConfig`); its defaults are used without
              `default_config`.
            * `validate_config(config)`: may change the config, or raise.
            * `default_policy`: policy class.
            * `policies`: `{framework: "module:Class"}`, imported when needed.
            * `get_policy_class(config)`: policy class, or None for the default one.
            * `validate_env(env, env_context)`: raises on a wrong environment; called in every worker.
            * `before_init(trainer)`, `after_init(trainer)`: before the workers exist; when all is built.
            * `before_evaluate_fn(trainer)`: at the start of each evaluation.
            * `mixins`: classes that come before `Trainer`; one may have a `training_iteration` in place of a plan.
            * `execution_plan(workers, config, **kwargs)`: the dataflow; `local_replay_buffer` is passed where declared.
            * `allow_unknown_configs`, `allow_unknown_subkeys`, `override_all_subkeys_if_type_changes`: see
              `rlframe.config.merge.merge_configs`.
            * `before_train_step(trainer)`, `after_optimizer_step(trainer, fetches)`,
              `after_train_result(trainer, result)`: around each iteration.
            * `make_policy_optimizer`: an older name of `execution_plan`.

    Returns:
        A `Trainer` subclass with `with_updates(**overrides)`. Calls come in this order: validate_config,
        get_policy_class, before_init, workers, execution_plan, after_init.

    Raises:
        TypeError: If an argument is unknown.
        ConfigError: If there are both an `execution_plan` and a mixin with a `training_iteration`.
    """
    arguments = _renamed(arguments)
    unknown = sorted(set(arguments) - set(ARGUMENTS))
    if unknown:
        raise TypeError(f"build_trainer() got {unknown[0]!r}, wanted one of {', '.join(ARGUMENTS)}")
    return _build({"name": name, **arguments}, Trainer, arguments)


class StepHooks:
    """Mixin of trainers that calls functions around `step()`.

    Attributes:
        _step_hooks: By name in `STEP_HOOKS`.
    """

    _step_hooks: ClassVar[Mapping[str, Callable[..., Any]]] = {}

    def step(self) -> dict[str, Any]:
        """Runs one iteration; what `after_train_result` writes into the result is reported."""
        self._call("before_train_step")
        result: dict[str, Any] = super().step()  # type: ignore[misc]  # the trainer's behind the mixin
        if "after_optimizer_step" in self._step_hooks:
            learner = result.get("info", {}).get("learner", {})
            self._call("after_optimizer_step", _fetches(learner))
        self._call("after_train_result", result)
        return result

    def _call(self, name: str, *arguments: Any) -> None:
        hook = self._step_hooks.get(name)
        if hook is not None:
            hook(self, *arguments)


def _fetches(learner: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what RLlib 0.8's optimizers told: statistics by policy, or those of the only one; and infos besides."""
    by_policy = {
        policy_id: {**info, **(info.get("learner_stats") or {})} if isinstance(info, Mapping) else info
        for policy_id, info in learner.items()
    }
    only = by_policy.get("default_policy") if len(by_policy) == 1 else None
    return {**by_policy, **(only if isinstance(only, Mapping) else {})}


def _renamed(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments with the plan under its name, whatever it was given as."""
    return {"execution_plan" if name == "make_policy_optimizer" else name: made for name, made in arguments.items()}


def _build(arguments: Mapping[str, Any], base: type[Trainer], given: Mapping[str, Any]) -> type[Trainer]:
    """Returns a class of all arguments; `given` are those that a program has just given, which `base` has not."""
    name = arguments["name"]
    mixins = new_mixins(base, arguments.get("mixins"))
    _check_one_way_to_train(given.get("execution_plan"), mixins)
    body: dict[str, Any] = {
        "__module__": __name__,
        "__doc__": _doc(arguments),
        "_name": name,
        "_config_class": arguments.get("config_class") or CommonConfig,
        "_arguments": dict(arguments),
        "_allow_unknown_subkeys": [*Trainer._allow_unknown_subkeys, *(arguments.get("allow_unknown_subkeys") or ())],
        "get_default_policy_class": _policy_getter(arguments),
        "with_updates": classmethod(cast(Any, _with_updates)),
    }
    if arguments.get("allow_unknown_configs") or "allow_unknown_configs" in given:  # else programs set it on Trainer
        body["_allow_unknown_configs"] = bool(arguments["allow_unknown_configs"])
    hooks = {hook: arguments[hook] for hook in STEP_HOOKS if arguments.get(hook) is not None}
    if hooks or given.keys() & set(STEP_HOOKS):
        body["_step_hooks"], mixins = hooks, (*mixins, *new_mixins(base, [StepHooks]))
    replaced = arguments.get("override_all_subkeys_if_type_changes") or ()
    body["_override_all_subkeys_if_type_changes"] = [*Trainer._override_all_subkeys_if_type_changes, *replaced]
    defaults = arguments.get("default_config")
    if defaults is not None:
        body["get_default_config"] = classmethod(_default_getter(defaults, body["_config_class"]))
    taken: dict[str, Any] = {}
    for argument, method in _HOOKS.items():
        if arguments.get(argument) is not None:
            body[method or argument] = _hook(arguments[argument], self_first=method is not None)
        elif argument in given:  # None takes the base's away, and leaves a mixin's
            taken[method or argument] = getattr(Trainer, method or argument)
    for argument in ("execution_plan", "validate_env"):
        if given.get(argument) is not None:  # a base's own may be a method that was overridden since
            body[argument] = staticmethod(given[argument])
    behind = type(base.__name__, (base,), {"__module__": base.__module__, **taken}) if taken else base
    made = type(name, (*mixins, behind), body)
    if arguments.get("config_class"):
        TRAINERS.setdefault(arguments["config_class"], made)
    return made


def _check_one_way_to_train(plan: Any, mixins: tuple[type, ...]) -> None:
    added = [level for mixin in mixins for level in mixin.__mro__ if level not in Trainer.__mro__]
    methods = [f"{level.__name__}.{name}" for level in added for name in METHODS if name in vars(level)]
    if plan is not None and methods:
        raise ConfigError(f"got both execution_plan and {methods[0]}(), wanted one of them: each is what trains")


def _doc(arguments: Mapping[str, Any]) -> str:
    """Returns the docstring of a built class: what the algorithm is, by its module, and the keys it adds."""
    name, declaration = arguments["name"], arguments.get("config_class") or CommonConfig
    source = declaration if declaration is not CommonConfig else arguments.get("execution_plan")
    module = sys.modules.get(getattr(source, "__module__", ""))
    about = (getattr(module, "__doc__", None) or f"{name}.").strip().partition("\n\n")[0]
    given = arguments.get("default_config") or {}
    own = [key for key in {**declaration.options(), **given} if key not in CommonConfig.options()]
    return (
        f"{about}\n\n"
        f"Made as `{name}Trainer(config, env=...)`; config is a dict of what differs from "
        f"`{name}Trainer.get_default_config()`.\n"
        f"Keys beside the common ones: {', '.join(own) or 'none'}. `rlframe config {name}` says what each means.\n"
    )


_HOOKS: dict[str, str | None] = {
    "validate_config": None,
    "before_init": "before_init",
    "after_init": "after_init",
    "before_evaluate_fn": "before_evaluate",
}


def _hook(function: Callable[..., Any], *, self_first: bool) -> Callable[..., Any]:
    if self_first:
        return lambda self: function(self)
    return lambda self, config: call_by_signature(function, config)


def _default_getter(
    defaults: Mapping[str, Any], declaration: type[AlgorithmConfig]
) -> Callable[[type[Trainer]], dict[str, Any]]:
    """Returns the getter of defaults that are read when asked for: programs change them after the trainer is built."""

    def get_default_config(cls: type[Trainer]) -> dict[str, Any]:
        from rlframe.config.nested_dict import copy_containers, overlay

        del cls
        # A user's own partial defaults stand on the declared ones, so that no key is ever missing.
        return overlay(declaration.defaults(), copy_containers(dict(defaults)))

    return get_default_config


def _policy_by_choice(trainer: Any, arguments: Mapping[str, Any], config: dict[str, Any]) -> Any:
    """Returns what `get_policy_class` chooses; None without it, or where it leaves the choice.

    One that refuses PyTorch beside a default policy of TensorFlow's is asked again with TensorFlow, RLlib's default,
    where the program says no framework.
    """
    chosen = arguments.get("get_policy_class")
    if chosen is None:
        return None
    try:
        return call_by_signature(chosen, config)
    except Exception:
        default = arguments.get("default_policy")
        said = getattr(trainer, "_framework_is_said", True) or config["framework"] != "torch"
        if said or default is None or getattr(default, "framework", None) != "tf":
            raise
        _LOGGER.warning(take_tensorflow(config, f"policy {default.__name__}"))
        return call_by_signature(chosen, config)


def _policy_getter(arguments: Mapping[str, Any]) -> Callable[..., Any]:
    def get_default_policy_class(self: Any, config: dict[str, Any]) -> Any:
        from rlframe.utils.framework import require_framework

        made = _policy_by_choice(self, arguments, config)
        if made is None and arguments.get("policies"):
            framework = require_framework(config["framework"], config.get("log_level"))
            path = arguments["policies"].get(framework)
            if path is None and arguments.get("default_policy") is None:
                raise ConfigError(
                    f"framework: {arguments['name']} has no policy for {config['framework']!r}, "
                    f"wanted one of {', '.join(arguments['policies'])}"
                )
            made = import_path(path) if path is not None else None
        made = arguments.get("default_policy") if made is None else made
        if made is None and has_all_classes((config.get("multiagent") or {}).get("policies")):
            return None
        if made is None:
            raise NoPolicyError(f"{arguments['name']} has no policy: pass default_policy or get_policy_class")
        belongs = getattr(made, "framework", None)
        if belongs in ("torch", "tf") and belongs != require_framework(config["framework"], config.get("log_level")):
            if belongs == "tf" and not getattr(self, "_framework_is_said", True):
                _LOGGER.warning(take_tensorflow(config, f"policy {made.__name__}"))
                return made
            raise ConfigError(
                f"framework: got {config['framework']!r}, but the policy {made.__name__} of {arguments['name']} learns "
                f"in {belongs!r}; set framework={belongs!r}, or pass a policy of the other framework"
            )
        return made

    return get_default_policy_class


def _with_updates(cls: type[Trainer], **overrides: Any) -> type[Trainer]:
    """Returns a trainer class with some of `build_trainer`'s arguments replaced.

    `default_policy=X` makes X the policy, whatever chose it before; a `get_policy_class` beside it comes first, and
    where that returns None, X is the policy.
    """
    overrides = _renamed(overrides)
    unknown = sorted(set(overrides) - set(ARGUMENTS))
    if unknown:
        raise TypeError(f"with_updates() got {unknown[0]!r}, wanted one of {', '.join(ARGUMENTS)}")
    original: dict[str, Any] = cls._arguments  # type: ignore[attr-defined]  # set on every built class
    arguments = {**original, **overrides}
    if overrides.get("default_policy") is not None:
        arguments["policies"] = None
        arguments["get_policy_class"] = overrides.get("get_policy_class")
    if overrides.get("default_config") is not None and "config_class" not in overrides:
        arguments["config_class"] = _declaration_of(overrides["default_config"], arguments)
    return _build(arguments, cls, overrides)


def _declaration_of(defaults: Mapping[str, Any], arguments: Mapping[str, Any]) -> type[AlgorithmConfig] | None:
    """Returns what declares the keys of a user's own plan: the algorithm of which the whole DEFAULT_CONFIG was taken.

    Args:
        defaults: The defaults given.
        arguments: Those of the trainer, whose declaration stands where the defaults have its keys, or nobody's.
    """
    declared: type[AlgorithmConfig] | None = arguments.get("config_class")
    plan = getattr(arguments.get("execution_plan"), "__module__", None) or "rlframe."
    if declared is None or plan.startswith("rlframe.") or declared.defaults().keys() <= defaults.keys():
        return declared
    whole = [other for other in TRAINERS if declared.options().keys() < {*declared.options(), *other.defaults()}]
    fits = [other for other in whole if other.defaults().keys() <= defaults.keys()]
    return max(fits, key=lambda other: len(other.defaults()), default=declared)
