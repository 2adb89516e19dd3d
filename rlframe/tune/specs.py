"""`tune.sample_from` with functions of Ray 1.x, which were given what `tune.run` was: `spec.config`, `spec.stop`."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

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
    return _replaced(config, {**beside, "stop": beside["stop"] or {}})


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


def _replaced(value: Any, beside: Mapping[str, Any]) -> Any:
    if isinstance(value, Function) and value.pass_config:
        return Function(_given_both(value.func, beside))
    if isinstance(value, dict):
        new = {key: _replaced(each, beside) for key, each in value.items()}
        return new if any(new[key] is not value[key] for key in new) else value
    if isinstance(value, list):
        several = [_replaced(each, beside) for each in value]
        return several if any(each is not old for each, old in zip(several, value, strict=True)) else value
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
