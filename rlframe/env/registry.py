"""From what a user writes as `env` to a function that makes the environment, on any machine."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import logging
import re
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
from gymnasium.envs import registration

from rlframe.env import old_ids
from rlframe.env.base_env import BaseEnv
from rlframe.env.env_context import EnvContext
from rlframe.env.external_env import ExternalEnv
from rlframe.utils import names, shared_names
from rlframe.utils.errors import ConfigError, EnvError

logger = logging.getLogger(__name__)

EnvCreator = Callable[[EnvContext], Any]

#: Names in Gymnasium's registry whose environments import what their arguments name.
_MAKERS_OF_OTHERS = frozenset({"GymV21Environment", "GymV26Environment"})

_creators: dict[str, Callable[..., Any]] = {}


def register_env(name: str, env_creator: Callable[..., Any]) -> None:
    """Makes `config["env"] = name` mean `env_creator`; trainers carry it to their workers, Ray Tune to its trials.

    Args:
        name: Any name. A name of Gymnasium's is overruled.
        env_creator: A class, or a function from an `EnvContext` to an environment; called as in `resolve_env`.

    Raises:
        EnvError: If `name` is no string or `env_creator` cannot be called.
    """
    if not isinstance(name, str) or not name:
        raise EnvError(f"register_env: the name is {name!r}; wanted a string that is not empty.")
    if not callable(env_creator):
        raise EnvError(
            f"register_env({name!r}): the creator is {env_creator!r} ({type(env_creator).__name__}); wanted a class or "
            "a function, such as `lambda config: MyEnv(config)`."
        )
    _creators[name] = env_creator
    shared_names.tell("env", name, env_creator)


def resolve_env(
    env: Any, lookup: Callable[[str], Callable[..., Any] | None] | None = None
) -> tuple[str, Callable[[EnvContext], Any]]:
    """Returns the name of an environment and a function that makes one copy of it from an `EnvContext`.

    A string is looked for in this order: names given to `register_env`, names that `lookup` knows, Gymnasium ids
    (`CartPole-v1`, `module:Id-v0`, and `CartPole` for the latest version), ids of the old gym if the program imported
    it, classes in files (`path/to/file.py:Class`), dotted class paths, and ids of the old gym that Gymnasium has under
    a later version (`Pendulum-v0`), which a warning tells. What is found is held by the function
    itself, so that it works in processes in which nothing was registered.

    Classes and functions are called with the `EnvContext` as their one positional argument. One that takes no
    positional argument, or whose first one has a default that is a number, string or bool (or is `render_mode`), does
    not expect a config there; it gets the keys of `env_config` as keyword arguments. Gymnasium ids get them too, and so
    does what a dotted class path names if it has an argument for each key: RLlib's configs have
    `env_config: {"config": {...}}` for a class at a path whose constructor takes `config`.

    Args:
        env: A string as above, a class, or a function.
        lookup: Finds names registered elsewhere; returns None for those it does not know.

    Returns:
        The name (of the class or function, where `env` is one), and the creator.

    Raises:
        EnvError: If nothing is found, with what was tried and the nearest names; or if `env` is something else.
    """
    if isinstance(env, str):
        return env, _resolve_name(env, lookup)
    if callable(env):
        name = getattr(env, "__name__", None) or type(env).__name__
        return name.strip("<>"), _CallCreator(env)
    if env is not None and hasattr(env, "step") and hasattr(env, "reset"):
        raise EnvError(
            f"env is the environment {env!r} itself; every worker and slot needs a copy of its own. Give the class "
            f"({type(env).__name__}) or a function that makes one: `lambda config: {type(env).__name__}(...)`."
        )
    raise EnvError(
        f"env is {env!r} ({type(env).__name__}); wanted a Gymnasium id, a name given to register_env, a class, a "
        "dotted class path, or a function from an EnvContext to an environment."
    )


def _resolve_name(name: str, lookup: Callable[[str], Callable[..., Any] | None] | None) -> EnvCreator:
    registered = _creators.get(name)
    if registered is None and lookup is not None:
        registered = lookup(name)
    if registered is not None:
        return _CallCreator(registered)
    if names.spells_file(name):
        found, says = _import_path(name)
        if found is None:
            raise EnvError(f"env {name!r}: {says}")
        return _CallCreator(found)
    spec, gymnasium_says = _find_gymnasium_spec(name)
    if spec is not None and not old_ids.is_stub(spec):
        if spec.name in _MAKERS_OF_OTHERS:
            names.check(f"the environment {name!r}, which makes what env_config names", name)
        return SpecCreator(spec, gymnasium.make)
    old_spec = _old_gym_specs().get(name)
    if old_spec is not None:
        return SpecCreator(old_spec, _make_old_gym)
    path = old_ids.OF_RLLIB.get(name, name)
    found, path_says = _import_path(path) if names.spells_path(path) else (None, "it is no dotted class path")
    if found is not None:
        return _CallCreator(found, by_path=True)
    later = old_ids.successor(name)
    if later is None:
        raise _unknown(name, gymnasium_says, path_says)
    logger.warning(later[1])
    return SpecCreator(later[0], gymnasium.make)


def _find_gymnasium_spec(name: str) -> tuple[registration.EnvSpec | None, str]:
    """Returns the spec of a Gymnasium id, or None and Gymnasium's own words."""
    module, colon, env_id = name.partition(":")
    if colon:
        try:
            names.import_for_side_effects(module, f"the environment {name!r}", name)
        except ConfigError as error:
            return None, f"module {module!r} cannot be imported: {error}"
    else:
        env_id = name
    spec, says = _look_up_spec(env_id)
    # The Atari games are not registered until ale_py is imported; a user who names one means that.
    if spec is None and "ale_py" not in sys.modules and importlib.util.find_spec("ale_py") is not None:
        gymnasium.register_envs(importlib.import_module("ale_py"))
        spec, says = _look_up_spec(env_id)
    return spec, says


def _look_up_spec(env_id: str) -> tuple[registration.EnvSpec | None, str]:
    try:
        namespace, name, version = registration.parse_env_id(env_id)
    except gymnasium.error.Error as error:
        return None, str(error)
    if version is None and env_id not in registration.registry:
        same = [s for s in registration.registry.values() if (s.namespace, s.name) == (namespace, name)]
        if same:
            latest = max(same, key=lambda s: -1 if s.version is None else s.version)
            logger.info("%s has no version; the latest, %s, is used.", env_id, latest.id)
            return latest, ""
    try:
        return registration.spec(env_id), ""
    except gymnasium.error.Error as error:
        return None, str(error)


def _old_gym_specs() -> Mapping[str, Any]:
    """Returns the specs of the old gym by id; empty unless the program has imported it."""
    module = sys.modules.get("gym.envs.registration")
    registry = getattr(module, "registry", {})
    # Up to gym 0.25 the registry is an object that holds the dict.
    specs: Mapping[str, Any] = getattr(registry, "env_specs", registry)
    return specs


def _make_old_gym(spec: Any, *, disable_env_checker: bool, **config: Any) -> Any:
    """Makes an environment from a spec of the old gym, of which only the later ones have a checker."""
    if hasattr(spec, "disable_env_checker"):
        config["disable_env_checker"] = disable_env_checker
    return spec.make(**config)


def _import_path(path: str) -> tuple[Callable[..., Any] | None, str]:
    """Returns the class or function at `package.module.Name`, or None and why there is none."""
    try:
        return names.find(path, ENVIRONMENT), ""
    except names.NameNotFoundError as error:
        return None, str(error)
    except ConfigError as error:
        raise EnvError(f"env {path!r}: {error}") from error


def _makes_env(found: Any) -> bool:
    """Tells whether something is a class of environments, or a function of the user's, which may make one."""
    if isinstance(found, types.FunctionType):
        return found.__module__.split(".")[0] not in sys.stdlib_module_names
    if not isinstance(found, type):
        return False
    if issubclass(found, (BaseEnv, ExternalEnv)):
        return True
    return any(all(callable(getattr(found, name, None)) for name in pair) for pair in _STEPS)


#: Methods by which environments are known: one, and several in step.
_STEPS = (("reset", "step"), ("vector_reset", "vector_step"))
ENVIRONMENT = names.Kind("environment", "a class with reset() and step(), or of a function that makes one", _makes_env)
"""What the name of an environment stands for."""


def _unknown(name: str, gymnasium_says: str, path_says: str) -> EnvError:
    known = [*_creators, *registration.registry, *_old_gym_specs()]
    by_lower = {other.lower(): other for other in known}
    near = [by_lower[match] for match in difflib.get_close_matches(name.lower(), by_lower, n=5, cutoff=0.6)]
    lines = [
        f"Unknown environment {name!r}.",
        f"Nearest known: {', '.join(near)}." if near else "Nothing known is near it.",
        f"Tried: names given to register_env ({', '.join(sorted(_creators)) or 'none in this process'}); "
        f"Gymnasium ({gymnasium_says.rstrip('.') or 'no such id'}); class path ({path_says}).",
        how_to_install(f"{name} {gymnasium_says}")
        or "Call `rlframe.env.register_env(name, creator)` before making the trainer, or give the class itself.",
    ]
    return EnvError("\n".join(lines))


# What a message or id speaks of (a pattern), and what has to be installed for it.
_INSTALL = {
    r"box2d": 'pip install "rlframe[box2d]"',
    r"mujoco": 'pip install "rlframe[mujoco]"',
    r"\bale\b|ale_py|noframeskip": 'pip install "rlframe[atari]"',
    r"pygame": 'pip install "rlframe[video]"',
    r"\bjax\b": 'pip install "gymnasium[jax]"',
}


def how_to_install(text: str) -> str:
    """Returns which package to install if `text` (a message or an id) speaks of one that Gymnasium makes optional."""
    for pattern, command in _INSTALL.items():
        if re.search(pattern, text.lower()):
            return f"It needs an extra package: {command}"
    return ""


@dataclass(frozen=True)
class SpecCreator:
    """Makes a registered environment from its spec, which travels with it to processes that never registered it."""

    spec: Any
    make: Callable[..., Any]

    def __call__(self, context: EnvContext) -> Any:
        """Returns an environment made with the keys of `env_config` as arguments."""
        config = {"disable_env_checker": True, **context}
        try:
            return self.make(self.spec, **config)
        except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
            how_to = how_to_install(f"{self.spec.id} {error}")
            raise EnvError(f"Environment {self.spec.id!r} cannot be made: {error}. {how_to}".rstrip()) from error
        except TypeError as error:
            if "unexpected keyword argument" not in str(error):
                raise
            raise EnvError(
                f"Environment {self.spec.id!r} does not take an argument that env_config holds: {error}. The keys of "
                f"env_config ({', '.join(map(repr, context)) or 'none'}) are its keyword arguments."
            ) from error


@dataclass(frozen=True)
class _CallCreator:
    """Calls a user's class or function with the context, or with its keys, as the signature asks.

    Attributes:
        function: The class or function.
        by_path: Whether the config names it by a dotted class path.
    """

    function: Callable[..., Any]
    by_path: bool = False

    def __call__(self, context: EnvContext) -> Any:
        if self.by_path and context and _names(self.function, context):
            return self.function(**context)
        if _takes_context(self.function):
            return self.function(context)
        signature = inspect.signature(self.function)
        try:
            signature.bind(**context)
        except TypeError as error:
            name = getattr(self.function, "__name__", repr(self.function))
            raise EnvError(
                f"Environment {name}{signature} has no first argument that takes the config, so the keys of env_config "
                f"({', '.join(map(repr, context)) or 'none'}) are its keyword arguments, and that fails: {error}. "
                f"Correct env_config, or declare `{name}(config)`."
            ) from error
        return self.function(**context)


def _names(function: Callable[..., Any], keys: Iterable[str]) -> bool:
    """Tells whether a function has an argument of each of these names."""
    try:
        return set(keys) <= set(inspect.signature(function).parameters)
    except ValueError:  # written in C, without a signature
        return False


def _takes_context(function: Callable[..., Any]) -> bool:
    """Tells whether the first positional argument of `function` is there, and may be a config."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:  # written in C, without a signature
        return True
    if not parameters:
        return False
    first = parameters[0]
    if first.kind is first.VAR_POSITIONAL:
        return True
    if first.kind in (first.KEYWORD_ONLY, first.VAR_KEYWORD) or first.name == "render_mode":
        return False
    return not isinstance(first.default, (bool, int, float, str))
