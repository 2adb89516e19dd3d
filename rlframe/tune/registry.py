"""`ray.tune.registry`, where programs that import `rlframe.tune.registry` look for it."""

from typing import Any

import ray.tune.registry
from ray.tune.registry import ENV_CREATOR, _global_registry

from rlframe.agents.registry import register_trainables
from rlframe.env.registry import register_env  # unlike Ray's, it is kept at ray.shutdown()
from rlframe.offline.sources import register_input
from rlframe.tune.functions import register_trainable

__all__ = [
    "ENV_CREATOR",
    "_global_registry",
    "get_trainable_cls",
    "register_env",
    "register_input",
    "register_trainable",
]


def get_trainable_cls(trainable_name: str) -> Any:
    """Returns what was registered under a name, or the algorithm of that name here.

    Ray forgets names at `ray.shutdown()`, and then takes algorithms of its own; so they are registered again before.

    Raises:
        TuneError: If there is nothing of that name.
    """
    register_trainables()
    return ray.tune.registry.get_trainable_cls(trainable_name)


def __getattr__(name: str) -> Any:
    """Returns Ray's own for what this package has none of its own of: `RLLIB_MODEL`, `TRAINABLE_CLASS`, ..."""
    return getattr(ray.tune.registry, name)
