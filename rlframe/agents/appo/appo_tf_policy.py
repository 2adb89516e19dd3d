"""APPO in TensorFlow: the target policy's network; see `appo_policy`."""

from __future__ import annotations

from typing import Any

from rlframe.agents.appo.appo_policy import AsyncPPOPolicy, appo_surrogate_loss, terms_with_gae, terms_with_vtrace
from rlframe.agents.families.vtrace_tf import VTraceTFBase
from rlframe.policy.tf.target import TargetNetwork
from rlframe.utils.quiet_tf import tf


class AsyncPPOTFPolicy(AsyncPPOPolicy, VTraceTFBase):
    """An actor with a critic, trained on a clipped surrogate against a policy of a few batches ago."""

    def __init__(self, obs_space: Any, action_space: Any, config: dict[str, Any]) -> None:
        VTraceTFBase.__init__(self, obs_space, action_space, config)
        with tf.device(self.device), self.seeded("target"):
            self.target_network = TargetNetwork(self.model, self.make_model_and_dist()[0])


__all__ = ["AsyncPPOTFPolicy", "appo_surrogate_loss", "terms_with_gae", "terms_with_vtrace"]
