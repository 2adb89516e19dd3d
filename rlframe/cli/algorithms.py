"""Trainer classes by what a user types."""

from __future__ import annotations

import sys
from typing import Any

from rlframe.utils import names
from rlframe.utils.errors import ConfigError


def canonical_name(name: str) -> str:
    """Returns how an algorithm's name is spelled: "PPO" for "ppo"; anything unknown is returned as it is."""
    from rlframe.agents.registry import ALGORITHMS

    return {known.lower(): known for known in ALGORITHMS}.get(name.lower(), name)


#: Where the `rlframe` script looks for a user's own modules: the working directory, as `python` does.
OWN_PLACES: list[str] = []


def _find_own_modules() -> None:
    """Has modules of the user's own found, but not for commands about runs: others' modules may lie beside those."""
    if not names.gates() and "" not in sys.path:
        sys.path[:0] = [place for place in OWN_PLACES if place not in sys.path]


def find_trainer_class(name: str) -> Any:
    """Returns the trainer class for a name, or for "module:Class" of the user's own.

    Args:
        name: "DQN" in any case, or "my_package.my_module:MyTrainer".

    Raises:
        ConfigError: If there is no such algorithm, module or class.
    """
    _find_own_modules()
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
