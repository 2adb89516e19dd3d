"""Soft actor-critic: `SACTrainer` and its policies; each is imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.utils.lazy import import_name

if TYPE_CHECKING:
    from rlframe.agents.sac.cql import CQL_DEFAULT_CONFIG, CQLConfig, CQLTrainer
    from rlframe.agents.sac.cql_policy import CQLTFPolicy, CQLTorchPolicy
    from rlframe.agents.sac.rnnsac import DEFAULT_CONFIG as RNNSAC_DEFAULT_CONFIG
    from rlframe.agents.sac.rnnsac import RNNSACConfig, RNNSACTrainer
    from rlframe.agents.sac.rnnsac_policy import RNNSACTFPolicy, RNNSACTorchPolicy
    from rlframe.agents.sac.sac import DEFAULT_CONFIG, SACConfig, SACTrainer
    from rlframe.agents.sac.sac_policy import SACTFPolicy, SACTorchPolicy

_NAMES = {
    "CQLConfig": "rlframe.agents.sac.cql",
    "CQLTFPolicy": "rlframe.agents.sac.cql_policy",
    "CQLTorchPolicy": "rlframe.agents.sac.cql_policy",
    "CQLTrainer": "rlframe.agents.sac.cql",
    "CQL_DEFAULT_CONFIG": "rlframe.agents.sac.cql",
    "DEFAULT_CONFIG": "rlframe.agents.sac.sac",
    "RNNSACConfig": "rlframe.agents.sac.rnnsac",
    "RNNSACTFPolicy": "rlframe.agents.sac.rnnsac_policy",
    "RNNSACTorchPolicy": "rlframe.agents.sac.rnnsac_policy",
    "RNNSACTrainer": "rlframe.agents.sac.rnnsac",
    "RNNSAC_DEFAULT_CONFIG": "rlframe.agents.sac.rnnsac:DEFAULT_CONFIG",
    "SACConfig": "rlframe.agents.sac.sac",
    "SACTFPolicy": "rlframe.agents.sac.sac_policy",
    "SACTorchPolicy": "rlframe.agents.sac.sac_policy",
    "SACTrainer": "rlframe.agents.sac.sac",
}

__all__ = [
    "CQL_DEFAULT_CONFIG",
    "DEFAULT_CONFIG",
    "RNNSAC_DEFAULT_CONFIG",
    "CQLConfig",
    "CQLTFPolicy",
    "CQLTorchPolicy",
    "CQLTrainer",
    "RNNSACConfig",
    "RNNSACTFPolicy",
    "RNNSACTorchPolicy",
    "RNNSACTrainer",
    "SACConfig",
    "SACTFPolicy",
    "SACTorchPolicy",
    "SACTrainer",
]


def __getattr__(name: str) -> Any:
    return import_name(__name__, _NAMES, name)
