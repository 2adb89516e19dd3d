"""PPO near a behaviour, for dense networks without autograd: the same numbers as `NearPPOPolicy.loss`, sooner."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlframe.agents.ppo.dense_ppo_torch import DensePPOGradients, Gaussians
from rlframe.data.sample_batch import SampleBatch
from rlframe.fast.dense_torch import Choices
from rlframe.revive.regularized import BEHAVIOUR


def divergence(dist: Choices | Gaussians, behaviour: Tensor) -> tuple[Tensor, Tensor]:
    """Returns KL(π‖b) `[B]`, and its gradient by π's distribution inputs `[B, K]`.

        choices: ∂ KL / ∂z = π ∘ (log π − log b − KL)
        Gaussians: ∂ KL / ∂(μ, l) = ((μ − μ_b) / σ_b², exp(2 l − 2 l_b) − 1)

    Args:
        dist: π.
        behaviour: Distribution inputs of b `[B, K]`.
    """
    if isinstance(dist, Choices):
        ratio = dist.log_probs - torch.log_softmax(behaviour, 1)
        kl = (dist.probs * ratio).sum(1)
        return kl, dist.probs * (ratio - kl.unsqueeze(1))
    mean, log_std = behaviour.chunk(2, 1)
    moved, widened = (dist.mean - mean) * torch.exp(-2.0 * log_std), torch.exp(2.0 * (dist.log_std - log_std))
    kl = (0.5 * (widened + moved * (dist.mean - mean) - 1.0) - dist.log_std + log_std).sum(1)
    return kl, torch.cat([moved, widened - 1.0], 1)


class NearPPOGradients(DensePPOGradients):
    """Fills the gradients of PPO's loss with `w_kl` · KL(π‖b), b the behaviour."""

    def host_state(self) -> tuple[Any, ...] | None:
        """Returns PPO's coefficients with this one."""
        numbers = super().host_state()
        return None if numbers is None else (*numbers, self._policy.config["w_kl"])

    def further(
        self, dist: Choices | Gaussians, batch: SampleBatch
    ) -> tuple[Tensor | float, dict[str, Tensor], Tensor | None]:
        """Returns PPO's further terms with this one."""
        terms, stats, slope = super().further(dist, batch)
        weight = self._policy.config["w_kl"]
        divergences, by_inputs = divergence(dist, batch[BEHAVIOUR])
        kl = divergences.mean()
        by_inputs = by_inputs.mul_(weight) if slope is None else slope.add_(by_inputs, alpha=weight)
        return terms + weight * kl, {**stats, "behaviour_kl": kl}, by_inputs


__all__ = ["NearPPOGradients"]
