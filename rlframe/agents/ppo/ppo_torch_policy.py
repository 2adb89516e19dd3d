"""PPO in PyTorch: the learner step; see `ppo_policy`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlframe.agents.families.kl_coeff import KLCoeffMixin
from rlframe.agents.ppo.dense_ppo_torch import DensePPOGradients
from rlframe.agents.ppo.ppo_policy import PPOPolicy, kl_and_loss_stats, ppo_surrogate_loss, setup_mixins
from rlframe.policy.torch_policy import TorchPolicy
from rlframe.policy.value_network import ValueNetworkMixin

Stats = dict[str, Any]


class PPOTorchPolicy(PPOPolicy, TorchPolicy):
    """An actor with a critic, trained on a clipped surrogate."""

    def __init__(self, observation_space: Any, action_space: Any, config: dict[str, Any]) -> None:
        self.setup_mixins(config)
        self.decide_popart(config)
        TorchPolicy.__init__(self, observation_space, action_space, config)
        self.check_popart()
        self.without_autograd = DensePPOGradients.of(self)

    def extra_grad_process(self, local_optimizer: torch.optim.Optimizer, loss: Tensor) -> Stats:
        """Clips the gradient's global norm to `grad_clip`."""
        return self.clip_gradients(local_optimizer, self.config["grad_clip"])


__all__ = [
    "KLCoeffMixin",
    "PPOTorchPolicy",
    "ValueNetworkMixin",
    "kl_and_loss_stats",
    "ppo_surrogate_loss",
    "setup_mixins",
]
