"""PPO in TensorFlow: the learner step; see `ppo_policy`."""

from __future__ import annotations

from typing import Any, TypeAlias

from rlframe.agents.families.kl_coeff import KLCoeffMixin
from rlframe.agents.ppo.ppo_policy import PPOPolicy, kl_and_loss_stats, ppo_surrogate_loss, setup_mixins
from rlframe.policy.tf_policy import TFPolicy
from rlframe.policy.value_network import ValueNetworkMixin

Tensor: TypeAlias = Any


class PPOTFPolicy(PPOPolicy, TFPolicy):
    """An actor with a critic, trained on a clipped surrogate."""

    learn_scalars = (*TFPolicy.learn_scalars, "value_std")

    def __init__(self, obs_space: Any, action_space: Any, config: dict[str, Any]) -> None:
        self.setup_mixins(config)
        self.decide_popart(config)
        TFPolicy.__init__(self, obs_space, action_space, config)
        self.check_popart()

    def gradients(self, optimizer: Any, loss: Tensor) -> list[tuple[Any, Any]]:
        """Clips the gradient's global norm to `grad_clip`."""
        return self.clip_gradients(super().gradients(optimizer, loss), self.config["grad_clip"])


__all__ = [
    "KLCoeffMixin",
    "PPOTFPolicy",
    "ValueNetworkMixin",
    "kl_and_loss_stats",
    "ppo_surrogate_loss",
    "setup_mixins",
]
