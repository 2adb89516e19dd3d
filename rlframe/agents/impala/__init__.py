"""IMPALA: `ImpalaTrainer` and its policies (imported when asked for)."""

from __future__ import annotations

import importlib
from typing import Any

from rlframe.agents.impala.impala import DEFAULT_CONFIG, ImpalaConfig, ImpalaTrainer

_POLICIES = {
    "VTraceTFPolicy": "rlframe.agents.impala.vtrace_tf_policy",
    "VTraceTorchPolicy": "rlframe.agents.impala.vtrace_torch_policy",
}
#: The name that RLlib's class carried inside.
IMPALATrainer = ImpalaTrainer

__all__ = ["DEFAULT_CONFIG", "IMPALATrainer", "ImpalaConfig", "ImpalaTrainer", *sorted(_POLICIES)]


def __getattr__(name: str) -> Any:
    if name not in _POLICIES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_POLICIES[name]), name)
