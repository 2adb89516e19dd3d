"""PPO's loss and its gradient for dense networks, choices and Gaussians, without autograd: the same numbers, sooner.

Nothing here is needed to understand PPO: `ppo_loss` says what is computed, and a test holds both to the same
gradients.
"""

from __future__ import annotations

import math
from typing import Any

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
from rlframe.fast.dense_torch import Choices, DenseActorCritic, explained_variance
from rlframe.losses.policy_gradients import action_bound_penalty
from rlframe.models.distributions import Categorical
from rlframe.models.fcnet_spec import POPART_LAYER
from rlframe.models.gaussian import DiagGaussian
from rlframe.models.modelv2 import ModelV2
from rlframe.policy.parts import LossOutput
from rlframe.policy.torch.fused import FusedLoss


class Gaussians:
    """Independent normal components of means μ and log deviations l, σ = exp(l), with δ = a − μ.

        ∂ log π(a|s) / ∂(μ, l) = (δ / σ², (δ / σ)² − 1),    ∂H / ∂(μ, l) = (0, 1),
        ∂ KL(π_old‖π) / ∂(μ, l) = ((μ − μ_old) / σ², 1 − exp(2 l_old − 2 l) − ((μ − μ_old) / σ)²)

    Args:
        mean: μ `[B, A]`.
        log_std: l `[B, A]`, or one row for all.
        actions: a `[B, A]`.
        old: Inputs of π_old, means and log deviations `[B, 2A]`.

    Attributes:
        mean, log_std: μ and l.
        logp, kl: Float `[B]`.
        entropy: Float `[B]`, or `[1]`.
    """

    def __init__(self, mean: Tensor, log_std: Tensor, actions: Tensor, old: Tensor) -> None:
        old_mean, old_log_std = old.chunk(2, 1)
        self.mean, self.log_std, size = mean, log_std, mean.shape[1]
        self._precision = torch.exp(-2.0 * log_std)
        self._off, self._moved = actions.reshape(mean.shape) - mean, mean - old_mean
        self._errors = self._off.square() * self._precision
        self._narrowed = torch.exp(2.0 * (old_log_std - log_std))
        self._distance = self._moved.square() * self._precision
        self.logp = -0.5 * self._errors.sum(1) - log_std.sum(1) - 0.5 * size * math.log(math.tau)
        self.entropy = log_std.sum(1) + 0.5 * size * (1.0 + math.log(math.tau))
        self.kl = (0.5 * (self._narrowed + self._distance - 1.0) - old_log_std + log_std).sum(1)

    def gradient(self, by_logp: Tensor, by_entropy: float, by_kl: float) -> Tensor:
        """Returns the gradient by means and log deviations `[B, 2A]`, of the gradients by what was made of them."""
        by_row = by_logp.unsqueeze(1)
        by_mean, by_log_std = by_row * self._off, torch.addcmul(-by_row + by_entropy, by_row, self._errors)
        if by_kl:
            by_mean.add_(self._moved, alpha=by_kl)
            by_log_std.add_(1.0 - self._narrowed - self._distance, alpha=by_kl)
        return torch.cat([by_mean.mul_(self._precision), by_log_std], 1)


class DensePPOGradients(FusedLoss):
    """Fills the gradients of PPO's loss for a policy and a value network of dense layers.

    The loss goes up both networks from the gradients by what they give: see `Choices`, `Gaussians`, `_clipped_values`.

    Args:
        policy: A policy whose gradients lie in one buffer.

    Raises:
        ValueError: If its networks are not made of dense layers alone.
    """

    def __init__(self, policy: Any) -> None:
        super().__init__(policy)
        free = policy.numpy_dist is DiagGaussian
        self._networks = DenseActorCritic(
            policy.model, policy.model.actor_spec(), free_log_std=free, left_out=POPART_LAYER
        )
        self._popart: Any = getattr(policy.model, POPART_LAYER, None)

    @classmethod
    def knows(cls, policy: Any) -> bool:
        """Returns whether the policy need not go by autograd.

        It must where the model adds to the loss; where actions are neither choices nor Gaussian, there is no critic, or
        the parameters do not share a buffer.
        """
        plain = type(policy.model).custom_loss is ModelV2.custom_loss
        known = policy.numpy_dist in {Categorical, DiagGaussian}
        return bool(plain and known and policy._flat_parameters is not None and policy.config["use_critic"])

    def host_state(self) -> tuple[Any, ...] | None:
        """Returns the coefficients; None where some are tensors, and with bounds, which are copied to the device."""
        policy, config = self._policy, self._policy.config
        numbers = (
            *(policy.kl_coeff, policy.entropy_coeff, policy.value_std),
            *(config[key] for key in ("clip_param", "vf_clip_param", "vf_loss_coeff")),
        )
        plain = not config.get("action_bound_coeff") and all(isinstance(number, int | float) for number in numbers)
        return numbers if plain else None

    @torch.no_grad()
    def __call__(self, batch: SampleBatch) -> Tensor:
        """Fills the gradients, has the policy keep the statistics, and returns the loss, a scalar."""
        policy, config = self._policy, self._policy.config
        outputs = self._networks.forward(batch[OBS])
        _, head, values = outputs
        dist, advantages = self._distributions(head[-1], batch), batch[ADVANTAGES]
        surrogate, by_logp = self._clipped_ratios(dist.logp, batch[ACTION_LOGP], advantages)
        kl = dist.kl.mean()
        value, targets = values[-1].squeeze(1), batch[VALUE_TARGETS]
        if self._popart is not None:
            value = torch.addcmul(self._popart.bias, value, self._popart.weight[0])
        vf_coeff = config["vf_loss_coeff"] / policy.value_std**2
        errors, by_value = self._clipped_values(value, batch[VF_PREDS], targets)
        vf_loss = errors.mean()
        policy_loss, entropy = -surrogate.mean(), dist.entropy.mean()
        total: Tensor = policy_loss + vf_coeff * vf_loss - policy.entropy_coeff * entropy
        if policy.kl_coeff:
            total = total + policy.kl_coeff * kl
        further, held, by_outputs = self.further(dist, batch)
        total = total + further
        stats = {
            "total_loss": total,
            "policy_loss": policy_loss,
            "vf_loss": vf_loss / policy.value_std**2,
            "vf_explained_var": explained_variance(targets, value),
            "kl": kl,
            "entropy": entropy,
        }
        policy.keep_output(LossOutput(total, {**stats, **held}))
        grad = dist.gradient(-by_logp, -policy.entropy_coeff, policy.kl_coeff)
        if by_outputs is not None:
            grad.add_(by_outputs)
        by_value = by_value.unsqueeze(1)
        if self._popart is not None:
            by_value = by_value * self._popart.weight
        rows = len(targets)
        self._networks.backward(outputs, grad.div_(rows), by_value.mul_(vf_coeff / rows))
        return total

    def _distributions(self, outputs: Tensor, batch: SampleBatch) -> Choices | Gaussians:
        if self._policy.numpy_dist is Categorical:
            return Choices(outputs, batch[ACTIONS], batch[ACTION_DIST_INPUTS])
        mean, log_std = outputs.chunk(2, 1) if self._networks.free is None else (outputs, self._networks.free[0])
        return Gaussians(mean, log_std, batch[ACTIONS], batch[ACTION_DIST_INPUTS])

    def further(
        self, dist: Choices | Gaussians, batch: SampleBatch
    ) -> tuple[Tensor | float, dict[str, Tensor], Tensor | None]:
        """Returns further terms of the loss: their sum, statistics, and the rows' gradients by distribution inputs."""
        del batch
        coeff = self._policy.config.get("action_bound_coeff")  # a config of the user's own may be RLlib's, without it
        bounds = self._policy.action_bounds.bounds if coeff else None
        if bounds is None:
            return 0.0, {}, None
        assert isinstance(dist, Gaussians)
        low, high = (torch.as_tensor(bound, device=dist.mean.device) for bound in bounds)
        cost = action_bound_penalty(dist.mean, low, high).mean()
        off, half = dist.mean - (low + high) / 2.0, (high - low) / 2.0
        slope = (off.abs() / half - 1.0).clamp_(min=0.0).mul_(off.sign()).mul_(2.0 * coeff / half)
        return coeff * cost, {"action_bound_loss": cost}, torch.cat([slope, torch.zeros_like(slope)], 1)

    def _clipped_ratios(self, logp: Tensor, old: Tensor, advantages: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the clipped surrogate and its gradient by log π, `[B]` each."""
        clip = self._policy.config["clip_param"]
        ratio = torch.exp(logp - old)
        free = ratio * advantages
        surrogate = torch.minimum(free, ratio.clamp(1.0 - clip, 1.0 + clip) * advantages)
        # Where the clipped ratio is the smaller one, nothing depends on the policy any more.
        return surrogate, surrogate.eq(free) * surrogate

    def _clipped_values(self, value: Tensor, old: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the clipped value loss and its gradient by V, `[B]` each."""
        clip = self._policy.config["vf_clip_param"]
        moved = value - old
        error, clipped_error = value - targets, old + moved.clamp(-clip, clip) - targets
        free, clipped = error.square(), clipped_error.square()
        slope = 2.0 * torch.where(free >= clipped, error, clipped_error * (moved.abs() <= clip))
        return torch.maximum(free, clipped), slope


__all__ = ["DensePPOGradients", "Gaussians"]
