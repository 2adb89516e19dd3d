"""MADDPG in PyTorch: optimisers, targets and clipping; see `maddpg_policy`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlframe.agents.maddpg.maddpg_policy import (
    PARTS,
    MADDPGPolicy,
    actor_loss,
    maddpg_losses,
    relaxed_actions,
    td_errors,
)
from rlframe.agents.maddpg.maddpg_torch_model import MADDPGTorchModel
from rlframe.policy.torch.target import TargetNetwork
from rlframe.policy.torch_policy import TorchPolicy

Stats = dict[str, Any]


class MADDPGTorchPolicy(MADDPGPolicy, TorchPolicy):
    """An actor, a critic of what all agents see and do, and targets that follow both."""

    model_class = MADDPGTorchModel

    def __init__(self, obs_space: gym.Space[Any], action_space: gym.Space[Any], config: dict[str, Any]) -> None:
        TorchPolicy.__init__(self, obs_space, action_space, config)
        self.target_network = TargetNetwork(self.model)
        self.target_models = {self.model: self.target_network.model}

    # --- parts ------------------------------------------------------------------------------------------------

    def optimizer(self) -> list[torch.optim.Optimizer]:
        """Returns Adam for the actor, with `actor_lr`, and for the critic, with `critic_lr`."""
        named = list(self.model.named_parameters())
        return [
            torch.optim.Adam([p for name, p in named if self.part_of(name) == part], lr=self.learning_rate(part))
            for part in PARTS
        ]

    def target_features(self, new_obs: NDArray[Any]) -> NDArray[np.float32]:
        """Returns the target actor's outputs, float32 `[B, A]`, for observations [B, D]."""
        with torch.no_grad():
            obs = torch.as_tensor(np.asarray(new_obs, np.float32), device=self.device)
            return np.asarray(self.target_network.model.features(obs).cpu().numpy())

    # --- learning ---------------------------------------------------------------------------------------------

    def extra_grad_process(self, optimizer: torch.optim.Optimizer, loss: Tensor) -> Stats:
        """Clips the norm of each weight array's gradient to `grad_norm_clipping`."""
        part, limit = PARTS[self._optimizers.index(optimizer)], self.config["grad_norm_clipping"]
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"]]
        norms = torch.stack([gradient.norm() for gradient in gradients])
        if limit:
            for gradient, norm in zip(gradients, norms, strict=True):
                gradient.mul_(limit / norm.clamp(min=limit))
        return {f"{part}_gnorm": norms.norm()}


__all__ = ["MADDPGTorchPolicy", "actor_loss", "maddpg_losses", "relaxed_actions", "td_errors"]
