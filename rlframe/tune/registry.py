"""`ray.tune.registry`, where programs that import `rlframe.tune.registry` look for it."""

from ray.tune.registry import ENV_CREATOR, _global_registry, get_trainable_cls, register_env

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
