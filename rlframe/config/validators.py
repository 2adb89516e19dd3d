"""What a value must be where types and bounds cannot say it. A rule returns None, or what is wanted instead."""

from collections.abc import Callable, Iterable
from typing import Any

from rlframe.config.faults import near_choice

CALLBACK_NAMES = frozenset(
    {
        "on_algorithm_init", "on_trainer_init", "on_create_policy", "on_episode_created", "on_episode_start",
        "on_episode_step", "on_episode_end", "on_evaluate_start", "on_evaluate_end", "on_postprocess_traj",
        "on_postprocess_trajectory", "on_sample_end", "on_learn_on_batch", "on_train_result",
        "on_sub_environment_created",
    }
)  # fmt: skip
"""Hooks that a dict of callbacks may name."""

_FILTERS = ("NoFilter", "MeanStdFilter", "ConcurrentMeanStdFilter")


def env_rule(value: Any) -> str | None:
    """Wants a name, a class or a function that makes the environment."""
    if value is None or isinstance(value, str) or callable(value):
        return None
    wanted = "a registered name, a Gymnasium id, a class, a function or None"
    if hasattr(value, "step") and hasattr(value, "reset"):
        return f"{wanted}; this is an instance: give its class, and what its constructor needs in env_config"
    return wanted


def space_rule(value: Any) -> str | None:
    """Wants a space of Gymnasium or of old gym, told by its methods."""
    if value is None or (hasattr(value, "contains") and hasattr(value, "sample")):
        return None
    return "a space, for example gymnasium.spaces.Box(-1.0, 1.0, (4,)), or None"


def filter_rule(value: Any) -> str | None:
    """Wants the name of a filter, or a function that makes one for a shape."""
    if callable(value) or value in _FILTERS:
        return None
    return f"one of {', '.join(map(repr, _FILTERS))} or a function of the shape{near_choice(value, _FILTERS)}"


def callbacks_rule(value: Any) -> str | None:
    """Wants a class (or what makes callbacks when called), or a dict of functions by hook."""
    if value is None or (callable(value) and not isinstance(value, dict)):
        return None
    if not isinstance(value, dict):
        return "a DefaultCallbacks subclass, a dict of functions or None"
    for name, function in value.items():
        if name not in CALLBACK_NAMES:
            return f"hooks such as on_episode_end as keys; there is no hook {name!r}{near_choice(name, CALLBACK_NAMES)}"
        as_text = isinstance(function, str) and function.startswith("<")  # what params.json writes for a function
        if function is not None and not as_text and not callable(function):
            return f"a function for every hook; that of {name} is a {type(function).__name__}"
    return None


def environ_rule(value: Any) -> str | None:
    """Wants text, or what is written as text without doubt, for every environment variable."""
    return _values_rule(value, lambda item: isinstance(item, str | int | float), "text or numbers as values")


def resources_rule(value: Any) -> str | None:
    """Wants an amount for every resource."""
    return _values_rule(value, lambda item: 0 <= item < float("inf"), "a number >= 0 for every resource")


def input_rule(value: Any) -> str | None:
    """Wants a name or path, several of them, shares by path, or a function."""
    if value is None or isinstance(value, str | list | tuple | dict) or callable(value):
        return None
    return "a name or path, a list or dict of them, or a function"


def _values_rule(value: dict[str, Any], good: Callable[[Any], bool], wanted: str) -> str | None:
    """Wants all values of a dict to be good."""
    bad: Iterable[str] = [f"{key}={item!r}" for key, item in value.items() if not good(item)]
    return f"{wanted}, not {', '.join(bad)}" if bad else None
