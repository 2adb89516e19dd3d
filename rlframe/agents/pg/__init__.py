"""The plain policy gradient: `PGTrainer` and its policies; each is imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.utils.lazy import import_name

if TYPE_CHECKING:
    from rlframe.agents.pg.pg import DEFAULT_CONFIG, PGConfig, PGTrainer
    from rlframe.agents.pg.pg_policy import PGTFPolicy, PGTorchPolicy, pg_tf_loss, pg_torch_loss
    from rlframe.evaluation.postprocessing import post_process_advantages

_NAMES = {
    "DEFAULT_CONFIG": "rlframe.agents.pg.pg",
    "PGConfig": "rlframe.agents.pg.pg",
    "PGTFPolicy": "rlframe.agents.pg.pg_policy",
    "PGTorchPolicy": "rlframe.agents.pg.pg_policy",
    "PGTrainer": "rlframe.agents.pg.pg",
    "pg_tf_loss": "rlframe.agents.pg.pg_policy",
    "pg_torch_loss": "rlframe.agents.pg.pg_policy",
    "post_process_advantages": "rlframe.evaluation.postprocessing",
}

__all__ = [
    "DEFAULT_CONFIG",
    "PGConfig",
    "PGTFPolicy",
    "PGTorchPolicy",
    "PGTrainer",
    "pg_tf_loss",
    "pg_torch_loss",
    "post_process_advantages",
]


def __getattr__(name: str) -> Any:
    return import_name(__name__, _NAMES, name)
