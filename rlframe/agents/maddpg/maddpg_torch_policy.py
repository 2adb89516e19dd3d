"""MADDPG in PyTorch: the losses of actor and critic, and the policy."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlframe.agents.maddpg.joint_steps import (
    JOINT_ACTIONS,
    JOINT_NEXT_ACTIONS,
    JOINT_NEXT_OBS,
    JOINT_OBS,
    NOISE,
)
from rlframe.agents.maddpg.maddpg_policy import PARTS, MADDPGPolicy
from rlframe.agents.maddpg.maddpg_torch_model import MADDPGTorchModel
from rlframe.data.columns import DISCOUNTS, OBS, REWARDS
from rlframe.data.sample_batch import SampleBatch
from rlframe.policy.torch.target import TargetNetwork
from rlframe.policy.torch_policy import TorchPolicy

Stats = dict[str, Any]


def td_errors(q_t: Tensor, q_tp1: Tensor, rewards: Tensor, discounts: Tensor) -> Tensor:
    """Returns the temporal-difference errors of a critic, float `[B]`.

        δ = Q(x, a_1, …, a_N) − [ r + γ · Q⁻(x', a'_1, …, a'_N) ],  a'_j = μ⁻_j(o'_j)

    Gradients flow through `q_t` only.

    Args:
        q_t: The critic's values of what was seen and done. Float `[B]`.
        q_tp1: The target critic's values of what followed. Float `[B]`.
        rewards: Sum of n discounted rewards of the agent. Float `[B]`, in env reward units.
        discounts: γᵏ for k summed rewards where the episode went on, 0 where it terminated. Float `[B]`.

    Source: Lowe et al. 2017, "Multi-Agent Actor-Critic for Mixed Cooperative-Competitive Environments", eq. 6.
    """
    return q_t - (rewards + discounts * q_tp1).detach()


def relaxed_actions(features: Tensor, noise: Tensor | None) -> Tensor:
    """Returns an actor's actions with gradients, float `[B, A]`.

    Args:
        features: The actor's outputs. Float `[B, A]`.
        noise: Gumbel noise, which makes a draw on the simplex of logits; None for actions tanh(features). `[B, A]`.

    Source: Jang et al. 2017, "Categorical Reparameterization with Gumbel-Softmax", eq. 2, at temperature 1.
    """
    return torch.tanh(features) if noise is None else torch.softmax(features + noise, -1)


def actor_loss(q: Tensor, features: Tensor, regularization: float) -> Tensor:
    """Returns the loss of an actor, a scalar.

        −mean Q(x, a_1, …, μ_i(o_i), …, a_N) + c · mean f²,  f the actor's outputs

    Args:
        q: The critic's values where the agent's own action is the actor's. Float `[B]`.
        features: The actor's outputs. Float `[B, A]`.
        regularization: c, which keeps logits from growing.

    Source: Lowe et al. 2017, eq. 5.
    """
    return -q.mean() + regularization * features.square().mean()


def maddpg_losses(policy: MADDPGTorchPolicy, model: Any, dist_class: Any, train_batch: SampleBatch) -> list[Tensor]:
    """Returns the losses of actor and critic, scalars; the actor's does not reach the critic's weights."""
    del dist_class
    actions, obs = train_batch[JOINT_ACTIONS], train_batch[JOINT_OBS]
    with torch.no_grad():
        seen = policy.seen_by_critic(train_batch[JOINT_NEXT_OBS], train_batch[JOINT_NEXT_ACTIONS])
        q_tp1 = policy.target_network.model.q_values(*seen)
    q_t = model.q_values(*policy.seen_by_critic(obs, actions))
    td_error = td_errors(q_t, q_tp1, train_batch[REWARDS], train_batch[DISCOUNTS])
    features = model.features(train_batch[OBS].float())
    own, mine = policy.joint.own_actions, relaxed_actions(features, train_batch.get(NOISE))
    joint = torch.cat([actions[:, : own.start], mine, actions[:, own.stop :]], dim=1)
    q_mine = model.q_values(*policy.seen_by_critic(obs, joint), frozen=True)
    losses = [
        actor_loss(q_mine, features, policy.config["actor_feature_reg"] or 0.0),
        td_error.square().mean(),
    ]
    policy.keep(
        td_error=td_error,
        actor_loss=losses[0],
        critic_loss=losses[1],
        mean_q=q_t.mean(),
        min_q=q_t.min(),
        max_q=q_t.max(),
    )
    return losses


class MADDPGTorchPolicy(MADDPGPolicy, TorchPolicy):
    """An actor, a critic of what all agents see and do, and targets that follow both."""

    model_class = MADDPGTorchModel

    def __init__(self, obs_space: gym.Space[Any], action_space: gym.Space[Any], config: dict[str, Any]) -> None:
        self.prepare(action_space, config)
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

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> list[Tensor]:
        """Returns the losses of one batch; see `maddpg_losses`."""
        return maddpg_losses(self, model, dist_class, train_batch)

    def extra_grad_process(self, optimizer: torch.optim.Optimizer, loss: Tensor) -> Stats:
        """Clips the norm of each weight array's gradient to `grad_norm_clipping`."""
        part, limit = PARTS[self._optimizers.index(optimizer)], self.config["grad_norm_clipping"]
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"]]
        norms = torch.stack([gradient.norm() for gradient in gradients])
        if limit:
            for gradient, norm in zip(gradients, norms, strict=True):
                gradient.mul_(limit / norm.clamp(min=limit))
        return {f"{part}_gnorm": norms.norm()}

    def extra_grad_info(self, train_batch: SampleBatch) -> Stats:
        """Returns both losses and statistics of the critic's values."""
        return {name: value for name, value in self._loss_outputs.items() if name != "td_error"}

    def extra_compute_grad_fetches(self) -> dict[str, Any]:
        """Returns the TD errors of the batch and their mean."""
        if "td_error" not in self._loss_outputs:  # a user's own loss kept none
            return {}
        td_error = self._loss_outputs["td_error"].cpu().numpy()
        return {"td_error": td_error, "mean_td_error": float(td_error.mean())}


__all__ = ["MADDPGTorchPolicy", "actor_loss", "maddpg_losses", "relaxed_actions", "td_errors"]
