"""Evolution strategies and random search: trainers, configs and policies; each is imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.utils.lazy import import_name

if TYPE_CHECKING:
    from rlframe.agents.es.es import (
        ARS_DEFAULT_CONFIG,
        DEFAULT_CONFIG,
        ARSConfig,
        ARSTrainer,
        ESConfig,
        ESTrainer,
    )
    from rlframe.agents.es.es_policy import ARSPolicy, ESPolicy

_NAMES = {
    "ARSConfig": "rlframe.agents.es.es",
    "ARSPolicy": "rlframe.agents.es.es_policy",
    "ARSTrainer": "rlframe.agents.es.es",
    "ARS_DEFAULT_CONFIG": "rlframe.agents.es.es",
    "DEFAULT_CONFIG": "rlframe.agents.es.es",
    "ESConfig": "rlframe.agents.es.es",
    "ESPolicy": "rlframe.agents.es.es_policy",
    "ESTrainer": "rlframe.agents.es.es",
}

__all__ = [
    "ARS_DEFAULT_CONFIG",
    "DEFAULT_CONFIG",
    "ARSConfig",
    "ARSPolicy",
    "ARSTrainer",
    "ESConfig",
    "ESPolicy",
    "ESTrainer",
]


def __getattr__(name: str) -> Any:
    return import_name(__name__, _NAMES, name)
