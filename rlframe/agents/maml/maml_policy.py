"""MAML: its policy, which is what all that adapt to tasks have; for both frameworks."""

from __future__ import annotations

from rlframe.agents.families.meta_policy import MetaPolicy, maml_loss
from rlframe.policy.backends import lazy_policies

__all__ = ["MAMLPolicy", "maml_loss"]


class MAMLPolicy(MetaPolicy):
    """Weights from which K gradient steps adapt to a task; see `MetaPolicy`."""

    defaults_from = "rlframe.agents.maml.maml:DEFAULT_CONFIG"


__getattr__ = lazy_policies(__name__, MAMLPolicy, MAMLTorchPolicy="torch", MAMLTFPolicy="tf")
