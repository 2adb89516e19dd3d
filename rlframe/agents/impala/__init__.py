"""IMPALA (inside, RLlib's class was an `IMPALATrainer`); each name is imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.utils.lazy import import_name

if TYPE_CHECKING:
    from rlframe.agents.impala.impala import DEFAULT_CONFIG, ImpalaConfig, ImpalaTrainer
    from rlframe.agents.impala.impala import ImpalaTrainer as IMPALATrainer
    from rlframe.agents.impala.vtrace_policy import VTraceTFPolicy, VTraceTorchPolicy

_NAMES = {
    "DEFAULT_CONFIG": "rlframe.agents.impala.impala",
    "IMPALATrainer": "rlframe.agents.impala.impala:ImpalaTrainer",
    "ImpalaConfig": "rlframe.agents.impala.impala",
    "ImpalaTrainer": "rlframe.agents.impala.impala",
    "VTraceTFPolicy": "rlframe.agents.impala.vtrace_policy",
    "VTraceTorchPolicy": "rlframe.agents.impala.vtrace_policy",
}

__all__ = ["DEFAULT_CONFIG", "IMPALATrainer", "ImpalaConfig", "ImpalaTrainer", "VTraceTFPolicy", "VTraceTorchPolicy"]


def __getattr__(name: str) -> Any:
    return import_name(__name__, _NAMES, name)
