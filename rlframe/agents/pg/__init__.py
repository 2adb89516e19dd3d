"""The plain policy gradient: `PGTrainer` and its policies (imported when asked for)."""

from __future__ import annotations

import importlib
from typing import Any

from rlframe.agents.pg.pg import DEFAULT_CONFIG, PGConfig, PGTrainer
from rlframe.evaluation.postprocessing import post_process_advantages

_POLICIES = {
    "PGTFPolicy": "rlframe.agents.pg.pg_tf_policy",
    "PGTorchPolicy": "rlframe.agents.pg.pg_torch_policy",
    "pg_tf_loss": "rlframe.agents.pg.pg_tf_policy",
    "pg_torch_loss": "rlframe.agents.pg.pg_torch_policy",
}

__all__ = ["DEFAULT_CONFIG", "PGConfig", "PGTrainer", "post_process_advantages", *sorted(_POLICIES)]


def __getattr__(name: str) -> Any:
    if name not in _POLICIES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_POLICIES[name]), name)
