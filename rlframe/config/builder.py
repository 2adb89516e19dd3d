"""Configs that are set group by group, as in RLlib 1.13 and 2.x: `PPOConfig().training(lr=1e-4).build("CartPole-v1")`.

`PPOConfig()` and its like return a `ConfigBuilder`.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from typing_extensions import Self

from rlframe.config.faults import fault_list, is_slip, unknown_key
from rlframe.config.nested_dict import TYPED_SECTIONS, copy_containers, overlay
from rlframe.config.renames import RenamedKeyWarning, Translation
from rlframe.utils.errors import ConfigError

#: What builds a trainer of a declaration, by declaration; `build_trainer` notes the first that it is told of.
TRAINERS: dict[type[Any], Callable[..., Any]] = {}
#: Methods of RLlib 2.x's configs that have no keys here.
_ELSEWHERE = {
    "rl_module": "training(model={...}), or a custom_model in it",
    "validate": "build(), or a trainer, which checks all keys at once",
    "freeze": "to_dict(), a copy",
}
_OWN = frozenset({"_declaration", "_trainer", "_given"})


def derived_builder(name: str, declaration: type[Any], namespace: dict[str, Any]) -> type[Any]:
    """Returns the class of a program that derives from an algorithm's config as from RLlib 1.13's.

    Its `__init__` calls `super().__init__(trainer_class=...)` and sets attributes; names that are no keys become keys.

    Args:
        name: Of the class.
        declaration: What it derives from.
        namespace: Its body.
    """

    def begin(self: ConfigBuilder, trainer_class: Any = None, algo_class: Any = None) -> None:
        ConfigBuilder.__init__(self, declaration, trainer_class or algo_class)

    base = type(declaration.__name__, (ConfigBuilder,), {"__init__": begin, "_adds_keys": True})
    return type(base)(name, (base,), namespace)


class ConfigBuilder(Mapping[str, Any]):
    """A config that is set group by group.

    Each method of a group takes keys as keywords and returns the builder. Any group takes any key of the algorithm: the
    groups are RLlib's, and say where programs look for a key. An underscore at a key's end is left out (`lambda_`).
    RLlib's later names (`num_rollout_workers`) are understood with a warning. A name that nobody declares is refused at
    once; values, and what keys say together, are checked by `build()`, for a value may be one of Tune's search spaces.

    As a mapping, and by attributes, it is the whole config, defaults included; `config.lr = 1e-4` sets a key.

    Args:
        declaration: Declares the keys.
        trainer: What `build` makes: a trainer class; None takes the algorithm's own.

    Raises:
        ConfigError: If the algorithm has no such key. Methods raise it, too.
    """

    _adds_keys = False

    def __init__(self, declaration: type[Any], trainer: Callable[..., Any] | None = None) -> None:
        self._declaration, self._trainer = declaration, trainer
        self._given: dict[str, Any] = {}

    # --- groups -----------------------------------------------------------------------------------------------

    def environment(self, env: Any = None, **keys: Any) -> Self:
        """Sets the environment (an id, a registered name, a class or a callable), and keys such as `env_config`."""
        return self._set({**({} if env is None else {"env": env}), **keys})

    def framework(self, framework: str | None = None, **keys: Any) -> Self:
        """Sets the framework, "torch" or "tf", and keys such as `eager_tracing`."""
        return self._set({**({} if framework is None else {"framework": framework}), **keys})

    def callbacks(self, callbacks: Any = None, **keys: Any) -> Self:
        """Sets the class of callbacks."""
        return self._set({**({} if callbacks is None else {"callbacks": callbacks}), **keys})

    def multi_agent(self, **keys: Any) -> Self:
        """Sets keys of `multiagent`: `policies`, `policy_mapping_fn`, `policies_to_train`, ..."""
        return self._set({"multiagent": keys})

    def training(self, **keys: Any) -> Self:
        """Sets keys; by custom those that say how is learned: `lr`, `gamma`, `train_batch_size`, `model`, ..."""
        return self._set(keys)

    #: Other groups, whose keys are keywords alone.
    rollouts = env_runners = resources = learners = exploration = evaluation = debugging = reporting = training
    fault_tolerance = checkpointing = offline_data = python_environment = experimental = api_stack = training

    # --- whole configs ----------------------------------------------------------------------------------------

    def update_from_dict(self, config: Mapping[str, Any]) -> Self:
        """Lays a config dict, whole or partial, on what was set."""
        return self._set(config)

    def copy(self) -> Self:
        """Returns a builder with the same keys, shared with nobody."""
        made = copy.copy(self)
        made._given = copy_containers(self._given)
        return made

    def to_dict(self) -> dict[str, Any]:
        """Returns the whole config as a fresh plain dict, for trainers, `tune.run` and programs that read it."""
        defaults = {**self._declaration.defaults(), **self._keys_of_its_trainer()}
        return overlay(defaults, copy_containers(self._given), TYPED_SECTIONS)

    def build(self, env: Any = None, logger_creator: Any = None) -> Any:
        """Returns a trainer with this config.

        Args:
            env: The environment, if `environment()` did not say it.
            logger_creator: As trainers take it.

        Raises:
            ConfigError: If the config is wrong, one line for each fault; or nobody has built a trainer of it.
        """
        trainer = self._trainer or TRAINERS.get(self._declaration)
        if trainer is None:
            name = self._declaration.__name__
            raise ConfigError(
                f"{name}().build(): got a declaration that no trainer is made of, wanted one: "
                f"build_trainer(name=..., config_class={name}, ...), or {name}(trainer_class=...)"
            )
        return trainer(copy_containers(self._given), env=env, logger_creator=logger_creator)

    build_algo = build

    # --- reading and setting single keys ------------------------------------------------------------------------

    def __getitem__(self, key: str) -> Any:
        return self.to_dict()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.to_dict())

    def __len__(self) -> int:
        return len(self.to_dict())

    def __setitem__(self, key: str, value: Any) -> None:
        self._set({key: value})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in _OWN:  # asked for while it is being copied
            raise AttributeError(name)
        if name in _ELSEWHERE:
            raise AttributeError(f"{self._title()}.{name}() is none of the groups here; use {_ELSEWHERE[name]}")
        try:
            return self[name]
        except KeyError:
            raise AttributeError(
                f"{self._title()} has no key and no group {name!r}; see rlframe.config.builder for the groups, and "
                "rlframe config ALGO for the keys"
            ) from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN:
            super().__setattr__(name, value)
        else:
            self._set({name: value})

    def __repr__(self) -> str:
        return f"{self._title()} with {self._given}"

    def _title(self) -> str:
        return f"{self._declaration.__name__}()"

    def _keys_of_its_trainer(self) -> dict[str, Any]:
        """Returns the defaults of the trainer that was named; those of a class that adds keys are made of it."""
        return {} if self._adds_keys else getattr(self._trainer, "get_default_config", dict)()

    def _set(self, keys: Mapping[str, Any]) -> Self:
        """Lays keys on what was set, by the names used here."""
        spelled = {key.removesuffix("_"): value for key, value in keys.items()}  # lambda_, input_
        known = self._declaration.known_keys()
        translation = Translation(spelled, known, deprecated=self._declaration.deprecated_keys())
        declared = {*self._declaration.options(), *self._keys_of_its_trainer(), *self._given}
        unknown = [key for key in translation.config if key not in declared]
        if self._adds_keys:
            unknown = [key for key in unknown if is_slip(key, known)]
        anything = getattr(self._trainer, "_allow_unknown_configs", False)
        faults = [*translation.faults, *(unknown_key(str(key), "", known, ()) for key in unknown if not anything)]
        if faults:
            raise ConfigError(fault_list(faults))
        for sentence in translation.sentences:
            warnings.warn(sentence, RenamedKeyWarning, stacklevel=3)
        self._given.update(overlay(self._given, translation.config, TYPED_SECTIONS))
        return self
