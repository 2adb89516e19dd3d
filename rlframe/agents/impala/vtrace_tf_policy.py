"""IMPALA in TensorFlow; see `vtrace_policy`."""

from __future__ import annotations

from rlframe.agents.families.vtrace_tf import VTraceTFBase
from rlframe.agents.impala.vtrace_policy import ImpalaPolicy, vtrace_loss


class VTraceTFPolicy(ImpalaPolicy, VTraceTFBase):
    """An actor with a critic, trained on rows of policies that lag behind."""


__all__ = ["VTraceTFPolicy", "vtrace_loss"]
