"""Trainer classes by what a user types."""

from __future__ import annotations

from typing import Any

from rlframe.utils import names
from rlframe.utils.errors import ConfigError


def canonical_name(name: str) -> str:
    """Returns how an algorithm's name is spelled: "PPO" for "ppo"; anything unknown is returned as it is."""
    from rlframe.agents.registry import ALGORITHMS

    return {known.lower(): known for known in ALGORITHMS}.get(name.lower(), name)


def find_trainer_class(name: str) -> Any:
    """Returns the trainer class for a name, or for "module:Class" of the user's own.

    Args:
        name: "DQN" in any case, or "my_package.my_module:MyTrainer".

    Raises:
        ConfigError: If there is no such algorithm, module or class.
    """
    if ":" not in name:
        from rlframe.agents.registry import get_trainer_class

        return get_trainer_class(canonical_name(name))
    try:
        return names.find(name, TRAINER)
    except names.NameNotFoundError as error:
        raise ConfigError(f"algorithm {name!r} cannot be imported: {error}") from error


def _is_trainer(found: Any) -> bool:
    return isinstance(found, type) and all(callable(getattr(found, method, None)) for method in _METHODS)


_METHODS = ("get_default_config", "train", "save", "restore")
TRAINER = names.Kind("algorithm", "a Trainer class", _is_trainer)
"""What the name of an algorithm of the user's own stands for."""
