"""`tune.sample_from` with functions of Ray 1.x, which were given what `tune.run` was: `spec.config`, `spec.stop`."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from typing import Any

from ray.tune.impl.placeholder import create_resolvers_map, inject_placeholders
from ray.tune.search.sample import Domain, Function
from ray.tune.search.variant_generator import _UnresolvedAccessGuard

#: What a trial's spec had beside the config, and what it was where the program said nothing.
_BESIDE_CONFIG: Mapping[str, Any] = {
    "stop": {},
    "num_samples": 1,
    "time_budget_s": None,
    "resources_per_trial": None,
    "local_dir": None,
    "checkpoint_freq": 0,
    "checkpoint_at_end": False,
    "keep_checkpoints_num": None,
    "max_failures": 0,
    "restore": None,
}


def with_specs(config: Any, arguments: Mapping[str, Any]) -> Any:
    """Returns a config whose functions may also read what stands beside the config.

    Args:
        config: Of trials, with whatever Tune samples. Not changed.
        arguments: Those of `tune.run` or of an experiment, as the program gave them.
    """
    beside = {name: arguments.get(name, default) for name, default in _BESIDE_CONFIG.items()}
    beside["stop"] = beside["stop"] or {}
    if arguments.get("search_alg") is not None:  # it chooses what it knows; functions are asked after it
        return _replaced(config, lambda each: Function(_given_both(each.func, beside)) if each.pass_config else each)
    objects: dict[Any, Any] = {}
    replaced = _replaced(config, lambda each: Sampled(each, beside, objects))
    if replaced is not config:
        objects.update(_objects_of(replaced))
    return replaced


def has_several_trials(spec: Any) -> bool:
    """Returns whether what `tune.run`, or an experiment of `run_experiments`, was given makes more than one trial.

    Args:
        spec: Its arguments: `config`, and `num_samples` where it is not 1.
    """
    return spec.get("num_samples", 1) != 1 or _has_choices(spec.get("config"))


def _has_choices(value: Any) -> bool:
    if isinstance(value, dict):
        return "grid_search" in value or any(map(_has_choices, value.values()))
    return isinstance(value, Domain) or (isinstance(value, (list, tuple)) and any(map(_has_choices, value)))


def _replaced(value: Any, make: Callable[[Function], Any]) -> Any:
    """Returns a config with what `make` returns for each function; parts without any are the same objects."""
    if isinstance(value, Function):
        return make(value)
    if isinstance(value, dict):
        new = {key: _replaced(each, make) for key, each in value.items()}
        return new if any(new[key] is not value[key] for key in new) else value
    if isinstance(value, list):
        several = [_replaced(each, make) for each in value]
        return several if any(each is not old for each, old in zip(several, value, strict=True)) else value
    return value


class Sampled(Domain):
    """What a function of `sample_from` returns, asked when a trial is made, as in Ray 1.x: its name has the value then.

    Ray asks once the trial begins, in the config's order: a function that reads what a later one returns would be given
    Ray's mark of that place.

    Args:
        function: Ray's, of the config or of the spec.
        beside: What stands beside the config in a spec.
        objects: Those of the config, by the marks that Ray puts in their places.
    """

    def __init__(self, function: Function, beside: Mapping[str, Any], objects: Mapping[Any, Any]) -> None:
        self._function, self._beside, self._objects = function, beside, objects

    def __deepcopy__(self, memo: dict[int, Any]) -> Sampled:
        return self  # as a function, which is what it stands for

    def sample(self, config: Any = None, size: int = 1, random_state: Any = None) -> Any:
        """Returns what the function does for a trial's spec, in which Ray has marks in the places of objects."""
        if not self._function.pass_config:
            return self._function.sample(size=size, random_state=random_state)
        known = _with_objects(config["config"], self._objects)
        return _given_both(self._function.func, {**config, **self._beside})(_UnresolvedAccessGuard(known))

    @property
    def domain_str(self) -> str:
        """Returns what the function is called."""
        return str(self._function.domain_str)


def _objects_of(config: Any) -> dict[Any, Any]:
    """Returns each object in a config that is no plain value by the mark that Ray will have in its place."""
    resolvers = create_resolvers_map()
    inject_placeholders(copy.deepcopy(config), resolvers)
    return {each.get_placeholder(): each.resolve() for several in resolvers.values() for each in several}


def _with_objects(value: Any, objects: Mapping[Any, Any]) -> Any:
    if isinstance(value, dict):
        return {key: _with_objects(each, objects) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_objects(each, objects) for each in value]
    if isinstance(value, tuple):
        marked = all(isinstance(part, str) for part in value) and value in objects
        return objects[value] if marked else tuple(_with_objects(each, objects) for each in value)
    return value


def _given_both(func: Any, beside: Mapping[str, Any]) -> Any:
    """Returns a function of the config that calls one of the config, or, if that has no such key, one of the spec."""

    @functools.wraps(func)
    def sampled(config: Any) -> Any:
        try:
            return func(config)
        except (AttributeError, KeyError):  # as Ray tells them apart, whose spec has nothing but the config
            return func(_UnresolvedAccessGuard({**beside, "config": config}))

    return sampled
