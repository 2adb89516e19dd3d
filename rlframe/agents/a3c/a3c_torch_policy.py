"""A2C and A3C in PyTorch: the learner step; see `a3c_policy`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlframe.agents.a3c.a3c_policy import A3CPolicy, actor_critic_loss
from rlframe.policy.torch_policy import TorchPolicy

Stats = dict[str, Any]


class A3CTorchPolicy(A3CPolicy, TorchPolicy):
    """An actor with a critic, trained on advantages."""

    def __init__(self, obs_space: Any, action_space: Any, config: dict[str, Any]) -> None:
        self.setup_mixins(config)
        TorchPolicy.__init__(self, obs_space, action_space, config)

    def extra_grad_process(self, optimizer: torch.optim.Optimizer, loss: Tensor) -> Stats:
        """Clips the gradient's global norm to `grad_clip`."""
        return self.clip_gradients(optimizer, self.for_means(self.config["grad_clip"]))


__all__ = ["A3CTorchPolicy", "actor_critic_loss"]
