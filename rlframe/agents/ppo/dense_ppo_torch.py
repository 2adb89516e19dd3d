"""PPO's loss and its gradient for dense networks and discrete actions without autograd: the same numbers, sooner.

Nothing here is needed to understand PPO: `ppo_loss` says what is computed, and a test holds both to the same
gradients.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from torch import Tensor

from rlframe.data.columns import (
    ACTION_DIST_INPUTS,
    ACTION_LOGP,
    ACTIONS,
    ADVANTAGES,
    OBS,
    VALUE_TARGETS,
    VF_PREDS,
)
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.policy_gradients import clipped_surrogate, clipped_value_loss, explained_variance
from rlframe.models.fcnet_spec import POPART_LAYER
from rlframe.models.modelv2 import ModelV2
from rlframe.models.torch.dense_chain import DenseChain
from rlframe.policy.torch.fused import FusedLoss


class DensePPOGradients(FusedLoss):
    """Fills the gradients of PPO's loss for a policy and a value network of dense layers.

    With logits z, π = softmax(z), one-hot actions e_a, ρ = π(a|s) / π_old(a|s) and entropy H:

        ∂ log π(a|s) / ∂z = e_a − π,    ∂H / ∂z = −π ∘ (log π + H),    ∂ KL(π_old‖π) / ∂z = π − π_old

    Args:
        policy: A policy whose gradients lie in one buffer.

    Raises:
        ValueError: If its networks are not made of dense layers alone.
    """

    def __init__(self, policy: Any) -> None:
        super().__init__(policy)
        spec = policy.model.actor_spec()
        if spec is None or "lstm" in spec or spec["values"] is None:
            raise ValueError("not a network of dense layers with values")
        shared = spec["shared"]
        self._trunk = DenseChain(policy.model, spec["outputs"][:shared])
        self._head = DenseChain(policy.model, spec["outputs"][shared:])
        self._values = DenseChain(policy.model, [layer for layer in spec["values"] if layer["name"] != POPART_LAYER])
        self._popart: Any = getattr(policy.model, POPART_LAYER, None)

    @classmethod
    def knows(cls, policy: Any) -> bool:
        """Returns whether the policy need not go by autograd.

        It must where the model adds to the loss; where actions are not discrete, there is no critic, or the parameters
        do not share a buffer.
        """
        plain = type(policy.model).custom_loss is ModelV2.custom_loss and policy.numpy_dist is not None
        discrete = isinstance(policy.action_space, gym.spaces.Discrete)
        return bool(plain and discrete and policy._flat_parameters is not None and policy.config["use_critic"])

    @torch.no_grad()
    def __call__(self, batch: SampleBatch) -> Tensor:
        """Fills the gradients, has the policy keep the statistics, and returns the loss, a scalar."""
        policy, config = self._policy, self._policy.config
        obs = batch[OBS]
        trunk = self._trunk.forward(obs if obs.dtype == torch.float32 and obs.dim() == 2 else obs.float().flatten(1))
        head, values = self._head.forward(trunk[-1]), self._values.forward(trunk[-1])
        log_probs = torch.log_softmax(head[-1], 1)
        old_log_probs = torch.log_softmax(batch[ACTION_DIST_INPUTS], 1)
        probs, old_probs = log_probs.exp(), old_log_probs.exp()
        index = batch[ACTIONS].long().unsqueeze(1)
        logp, advantages = log_probs.gather(1, index).squeeze(1), batch[ADVANTAGES]
        surrogate = clipped_surrogate(logp, batch[ACTION_LOGP], advantages, config["clip_param"])
        entropy = -(probs * log_probs).sum(1)
        kl = (old_probs * (old_log_probs - log_probs)).sum(1).mean()
        value, targets = values[-1].squeeze(1), batch[VALUE_TARGETS]
        if self._popart is not None:
            value = torch.addcmul(self._popart.bias, value, self._popart.weight[0])
        vf_coeff = config["vf_loss_coeff"] / policy.value_std**2
        vf_loss = clipped_value_loss(value, batch[VF_PREDS], targets, config["vf_clip_param"]).mean()
        policy_loss, mean_entropy = -surrogate.mean(), entropy.mean()
        total: Tensor = policy_loss + vf_coeff * vf_loss - policy.entropy_coeff * mean_entropy
        if policy.kl_coeff:
            total = total + policy.kl_coeff * kl
        explained = explained_variance(targets, value)
        policy.keep(
            total_loss=total,
            policy_loss=policy_loss,
            vf_loss=vf_loss / policy.value_std**2,
            vf_explained_var=explained,
            kl=kl,
            entropy=mean_entropy,
        )
        # Where the clipped ratio is the smaller one, nothing depends on the policy any more.
        slope = surrogate.eq(torch.exp(logp - batch[ACTION_LOGP]) * advantages) * surrogate
        grad = probs * slope.unsqueeze(1)
        grad.scatter_add_(1, index, -slope.unsqueeze(1))
        if policy.entropy_coeff:
            grad.addcmul_(probs, log_probs + entropy.unsqueeze(1), value=policy.entropy_coeff)
        if policy.kl_coeff:
            grad.add_(probs - old_probs, alpha=policy.kl_coeff)
        by_value = self._value_slope(value, batch[VF_PREDS], targets).unsqueeze(1)
        if self._popart is not None:
            by_value = by_value * self._popart.weight
        rows = len(targets)
        self._backward(trunk, head, values, grad.div_(rows), by_value.mul_(vf_coeff / rows))
        return total

    def _value_slope(self, value: Tensor, old: Tensor, targets: Tensor) -> Tensor:
        """Returns the gradient of the clipped value loss by V, `[B]`."""
        clip = self._policy.config["vf_clip_param"]
        moved = value - old
        clipped = old + moved.clamp(-clip, clip)
        error, clipped_error = value - targets, clipped - targets
        inside = moved.abs() <= clip
        return 2.0 * torch.where(error.square() >= clipped_error.square(), error, clipped_error * inside)

    def _backward(
        self, trunk: list[Tensor], head: list[Tensor], values: list[Tensor], by_outputs: Tensor, by_values: Tensor
    ) -> None:
        """Fills the gradients from those by the logits [B, A] and by the values [B, 1]."""
        shares = bool(self._trunk)
        by_features = self._head.backward(head, by_outputs, input_grad=shares)
        by_value_features = self._values.backward(values, by_values, input_grad=shares)
        if shares:
            assert by_features is not None
            assert by_value_features is not None
            self._trunk.backward(trunk, by_features + by_value_features, input_grad=False)


__all__ = ["DensePPOGradients"]
