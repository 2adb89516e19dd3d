"""APPO in PyTorch: the target policy's network; see `appo_policy`."""

from __future__ import annotations

from typing import Any

from rlframe.agents.appo.appo_policy import AsyncPPOPolicy, appo_surrogate_loss, terms_with_gae, terms_with_vtrace
from rlframe.agents.families.vtrace_torch import VTraceTorchBase
from rlframe.policy.torch.target import TargetNetwork


class AsyncPPOTorchPolicy(AsyncPPOPolicy, VTraceTorchBase):
    """An actor with a critic, trained on a clipped surrogate against a policy of a few batches ago."""

    def __init__(self, obs_space: Any, action_space: Any, config: dict[str, Any]) -> None:
        VTraceTorchBase.__init__(self, obs_space, action_space, config)
        self.target_network = TargetNetwork(self.model)


__all__ = ["AsyncPPOTorchPolicy", "appo_surrogate_loss", "terms_with_gae", "terms_with_vtrace"]
