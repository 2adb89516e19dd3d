"""What a trainer does once, before it trains: config, environment, seeds, directories."""

from __future__ import annotations

import datetime
import importlib
import inspect
import os
import random
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.config.common import CommonConfig
from rlframe.config.merge import merge_configs
from rlframe.utils.errors import ConfigError

if TYPE_CHECKING:
    from rlframe.config.options import AlgorithmConfig

#: Where trainers outside Tune and the command line keep their logs, as Ray does.
RESULTS_DIRECTORY = os.path.expanduser(os.environ.get("RLFRAME_RESULTS_DIR", "~/ray_results"))


def find_ray_env(name: str) -> Callable[..., Any] | None:
    """Returns the creator registered with `ray.tune.register_env` under `name`, None if there is none."""
    from ray.tune.registry import ENV_CREATOR, _global_registry

    if not _global_registry.contains(ENV_CREATOR, name):
        return None
    creator: Callable[..., Any] = _global_registry.get(ENV_CREATOR, name)
    return creator


def resolve_trainer_env(env: Any) -> tuple[str | None, Callable[..., Any] | None]:
    """Returns name and creator of what stands in `env=` or `config["env"]`; Nones for no environment."""
    if env is None:
        return None, None
    from rlframe.env.registry import resolve_env

    name, creator = resolve_env(env, lookup=find_ray_env)
    return name, creator


def merge_trainer_config(
    declaration: type[AlgorithmConfig] | None,
    defaults: Mapping[str, Any],
    config: Mapping[str, Any],
    **allowances: Any,
) -> dict[str, Any]:
    """Returns the whole config of a trainer; see `rlframe.config.merge.merge_configs`."""
    return merge_configs(defaults, config, declaration or CommonConfig, **allowances)


def framework_of_models(config: Mapping[str, Any]) -> str | None:
    """Returns the one framework of custom models and distributions; None without any of them, or where they differ."""
    from rlframe.models.catalog import ModelCatalog

    policies = (config.get("multiagent") or {}).get("policies")
    specs = policies.values() if isinstance(policies, Mapping) else ()
    own = [part for spec in specs if isinstance(spec, (tuple, list)) for part in spec if isinstance(part, Mapping)]
    sections = [config.get(name) for name in ("Q_model", "policy_model")] + [
        part.get("model") for part in (config, *own)
    ]
    models = [section.get("custom_model") for section in sections if isinstance(section, Mapping)]
    dists = [section.get("custom_action_dist") for section in sections if isinstance(section, Mapping)]
    found = {ModelCatalog.framework_of(model) for model in models if model is not None}
    found |= {ModelCatalog.framework_of_dist(dist) for dist in dists if dist is not None}
    found -= {None}
    return found.pop() if len(found) == 1 else None


def framework_of_policies(config: Mapping[str, Any]) -> str | None:
    """Returns the one framework in which the classes of `multiagent.policies` learn; None where they say none."""
    policies = (config.get("multiagent") or {}).get("policies")
    specs = policies.values() if isinstance(policies, Mapping) else ()
    found = {getattr(spec[0], "framework", None) for spec in specs if isinstance(spec, (tuple, list)) and spec}
    found &= {"torch", "tf"}
    return found.pop() if len(found) == 1 else None


def says_framework(config: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Returns whether a program has said a framework; a copy of the default config has not, unless it says another."""
    said = not given.keys().isdisjoint(("framework", "use_pytorch"))  # eager=False says nothing, True TensorFlow
    return config["framework"] != "torch" or (said and len(given) < len(config) // 2)


def settle_framework(config: dict[str, Any], given: Mapping[str, Any]) -> str | None:
    """Takes TensorFlow where models or policies are made for it and a program says no framework: RLlib's default.

    Args:
        config: The whole config of a trainer; changed in place.
        given: What the program gave.

    Returns:
        A sentence for the log where TensorFlow is taken, else None.
    """
    if says_framework(config, given):
        return None
    found = {"custom model or distribution": framework_of_models(config), "policy": framework_of_policies(config)}
    return next((take_tensorflow(config, what) for what, framework in found.items() if framework == "tf"), None)


def take_tensorflow(config: dict[str, Any], because: str) -> str:
    """Sets the framework of a config, and returns a sentence for the log that says why."""
    config["framework"] = "tf"
    return (
        f"The {because} is made for TensorFlow, so framework='tf' is taken; say it in the config, whose default is "
        f"'torch'."
    )


def seed_process(seed: int | None, worker_index: int = 0) -> None:
    """Seeds the global streams of `random` and NumPy, for environments that draw from them; None leaves them."""
    if seed is None:
        return
    random.seed(seed + worker_index)
    np.random.seed((seed + worker_index) % 2**32)  # noqa: NPY002 - users' environments draw from the global stream


def call_by_signature(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """Calls a user's function with the arguments that its signature takes.

    Positional ones are given up to their number, keywords only where declared. The signature is read, so a TypeError
    raised inside stays what it is.
    """
    parameters = list(inspect.signature(function).parameters.values())
    takes_all = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    given = arguments if takes_all else arguments[: len(positional)]
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        names = {p.name for p in parameters}
        keywords = {name: value for name, value in keywords.items() if name in names}
    return function(*given, **keywords)


def required_positionals(function: Callable[..., Any], *by_name: str) -> int:
    """Returns how many positional arguments a function cannot be called without, besides those given by name."""
    parameters = inspect.signature(function).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in kinds and p.default is p.empty and p.name not in by_name for p in parameters)


def make_logdir(name: str, env_name: str | None, parent: str | None) -> str:
    """Returns a fresh directory `<parent>/<name>_<env>_<time>_<random>`."""
    base = os.path.expanduser(parent or RESULTS_DIRECTORY)
    os.makedirs(base, exist_ok=True)
    stamp = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    env_part = (env_name or "env").replace("/", "-").replace(":", "-")
    return tempfile.mkdtemp(prefix=f"{name}_{env_part}_{stamp}", dir=base)


def import_path(path: str) -> Any:
    """Returns the object at "module:Name" or "module.Name".

    Raises:
        ConfigError: If there is no such module or name.
    """
    module, _, name = path.partition(":") if ":" in path else path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"cannot import {path!r}: {error}") from error


class NoPolicyError(ConfigError):
    """A trainer names no default policy, and the config not the class of each."""


def has_all_classes(table: Any) -> bool:
    """Returns whether a table of policies names the class of each: alone, or first in a specification."""
    specs = list(table.values()) if isinstance(table, Mapping) else []
    return bool(specs) and all((spec[0] if isinstance(spec, (tuple, list)) else spec) is not None for spec in specs)


def added_to(common: Sequence[str], own: Iterable[str]) -> list[str]:
    """Returns what a class's own list has beyond that of `Trainer`, which it may go on from; all, where it does not."""
    added = list(own)
    if not set(common) <= set(added):
        return added
    for name in common:
        added.remove(name)
    return added


def own_policy_class(trainer_class: Any) -> Any:
    """Returns the class that a direct subclass of `Trainer` names in `_policy_class`, as in RLlib 1.9; None without."""
    named = inspect.getattr_static(trainer_class, "_policy_class", None)
    return named if isinstance(named, type) else None


def has_own_code(trainer_class: Any, config: Mapping[str, Any] | None) -> bool:
    """Returns whether a plan, or the class of a policy, is the program's own, or chosen by a function of its own."""
    from rlframe.policy.users_code import is_users

    arguments = getattr(trainer_class, "_arguments", {})
    table = ((config or {}).get("multiagent") or {}).get("policies")
    specs = list(table.values()) if isinstance(table, Mapping) else []
    code = [
        trainer_class.execution_plan,
        trainer_class.get_default_policy_class,
        own_policy_class(trainer_class),
        arguments.get("get_policy_class"),
        arguments.get("default_policy"),
        *(
            spec[0] if isinstance(spec, (tuple, list)) and spec else getattr(spec, "policy_class", spec)
            for spec in specs
        ),
    ]
    return any(
        is_users(each) if isinstance(each, type) else not str(getattr(each, "__module__", "")).startswith("rlframe.")
        for each in code
        if isinstance(each, type) or callable(each)
    )


def plan_makes_buffer(trainer: Any, given: Mapping[str, Any]) -> bool:
    """Returns whether a plan of the program's own makes its buffer, as no config has a `replay_buffer_config`."""
    plan = trainer.execution_plan
    if str(getattr(plan, "__module__", "")).startswith("rlframe.") or "replay_buffer_config" in given:
        return False
    named = inspect.signature(plan).parameters
    return "local_replay_buffer" not in named and "replay_buffer_config" not in trainer.get_default_config()
