"""IMPALA in PyTorch; see `vtrace_policy`."""

from __future__ import annotations

from rlframe.agents.families.vtrace_torch import VTraceTorchBase
from rlframe.agents.impala.vtrace_policy import ImpalaPolicy, vtrace_loss


class VTraceTorchPolicy(ImpalaPolicy, VTraceTorchBase):
    """An actor with a critic, trained on rows of policies that lag behind."""


__all__ = ["VTraceTorchPolicy", "vtrace_loss"]
