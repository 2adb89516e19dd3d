"""IMPALA's loss and its gradient for dense networks and choices without autograd: the same numbers in less time.

Nothing here is needed to understand IMPALA: `vtrace_loss` says what is computed, and a test holds both to the same
gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rlframe.agents.families.vtrace_policy import vtrace_options
from rlframe.data.columns import (
    ACTION_LOGP,
    ACTIONS,
    DISCOUNTS,
    OBS,
    REWARDS,
    TRAJECTORY_ENDS,
    VALID_MASK,
    VALUES_AFTER,
)
from rlframe.data.sample_batch import SampleBatch
from rlframe.fast.dense_torch import Choices, DenseActorCritic, explained_variance
from rlframe.losses.policy_gradients import MOST_RATIO
from rlframe.models.distributions import Categorical
from rlframe.models.modelv2 import ModelV2
from rlframe.policy.parts import LossOutput
from rlframe.policy.torch.fused import FusedLoss

_MOMENTS = "_popart_moments"


class DenseVTraceGradients(FusedLoss):
    """Fills the gradients of IMPALA's loss for an actor that chooses and values of dense layers.

    With ρ = π(a|s) / μ(a|s) and V = m + σ v, of each of the n rows that count:

        ∂ loss / ∂ log π(a|s) = (c_k (min(ρ, 20) − 1) − A) / n,    ∂ loss / ∂ v = c_v (V − v_s) / (σ n)

    Args:
        policy: A policy whose gradients lie in one buffer.

    Raises:
        ValueError: If its networks are not made of dense layers alone.
    """

    def __init__(self, policy: Any) -> None:
        super().__init__(policy)
        self._networks = DenseActorCritic(policy.model, policy.model.actor_spec())

    @classmethod
    def knows(cls, policy: Any) -> bool:
        """Returns whether the policy need not go by autograd.

        It must where the model adds to the loss; where actions are no choices, or the parameters do not share a buffer.
        """
        plain = type(policy.model).custom_loss is ModelV2.custom_loss
        return bool(plain and policy.numpy_dist is Categorical and policy._flat_parameters is not None)

    def host_state(self) -> tuple[Any, ...] | None:
        """Returns the coefficients; None where some are tensors."""
        policy, config = self._policy, self._policy.config
        coefficients = (config[key] for key in ("behaviour_kl_coeff", "vf_loss_coeff"))
        numbers = (*coefficients, policy.entropy_coeff)
        plain = all(isinstance(number, int | float) for number in numbers)
        return (*numbers, *vtrace_options(policy).values()) if plain else None

    def inputs(self) -> dict[str, Tensor]:
        """Returns PopArt's μ and σ, float `[2]`."""
        policy = self._policy
        return {_MOMENTS: torch.tensor([policy.value_mean, policy.value_std], device=policy.device)}

    @torch.no_grad()
    def __call__(self, batch: SampleBatch) -> Tensor:
        """Fills the gradients, has the policy keep the statistics, and returns the loss, a scalar."""
        policy, config = self._policy, self._policy.config
        outputs = self._networks.forward(batch[OBS])
        _, head, values = outputs
        dist = Choices(head[-1], batch[ACTIONS], None)
        value, moments = values[-1].squeeze(1), batch.get(_MOMENTS)
        value_mean, value_std = (policy.value_mean, policy.value_std) if moments is None else moments
        if policy.popart.normalizes:
            value = value * value_std + value_mean
        targets, advantages, counts = _vtrace(batch, dist.logp, value, **vtrace_options(policy))
        mean, weights = _mean_over(counts, value)
        if policy.scales_advantages:
            advantages = advantages / mean(advantages.square()).sqrt().clamp(min=1e-4)
        log_ratio = dist.logp - batch[ACTION_LOGP]
        beyond = (log_ratio - math.log(MOST_RATIO)).clamp(min=0.0)
        bounded = (log_ratio - beyond).exp()
        behaviour_kl = mean(bounded * (1.0 + beyond) - 1.0 - log_ratio)
        errors = (value - targets) / value_std
        policy_loss, entropy, vf_loss = -mean(dist.logp * advantages), mean(dist.entropy), 0.5 * mean(errors.square())
        kl_coeff, vf_coeff = config["behaviour_kl_coeff"], config["vf_loss_coeff"]
        total: Tensor = policy_loss - policy.entropy_coeff * entropy + kl_coeff * behaviour_kl + vf_coeff * vf_loss
        stats = {
            "total_loss": total,
            "policy_loss": policy_loss,
            "vf_loss": vf_loss,
            "entropy": entropy,
            "behaviour_kl": behaviour_kl,
            "vf_explained_var": explained_variance(targets, value, lambda of: mean((of - mean(of)).square())),
        }
        if policy.popart.normalizes:
            spread = mean(((targets - value_mean) / value_std).square())
            stats |= {"vf_target_mean": mean(targets), "vf_target_spread": spread}
        policy.keep_output(LossOutput(total, stats))
        by_outputs = dist.gradient(kl_coeff * (bounded - 1.0) - advantages, -policy.entropy_coeff, 0.0)
        weights = weights.unsqueeze(1)
        self._networks.backward(outputs, by_outputs * weights, vf_coeff * errors.unsqueeze(1) * weights)
        return total


def _mean_over(counts: Tensor | None, column: Tensor) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """Returns what takes the mean over the rows that count, and each row's weight in it, float `[B]`."""
    if counts is None:
        return torch.mean, torch.full_like(column, 1.0 / len(column))
    number = counts.sum().clamp(min=1).float()
    return lambda values: torch.where(counts, values, 0.0).sum() / number, counts / number


def _vtrace(
    batch: SampleBatch,
    logp: Tensor,
    values: Tensor,
    *,
    drop_last: bool,
    clip_rho: float | None,
    clip_pg_rho: float | None,
    lambda_: float,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Returns targets, advantages and which rows count, `[B]` each, None for all; see `batch_vtrace`."""
    ends, discounts, counts = batch[TRAJECTORY_ENDS], batch[DISCOUNTS], batch.get(VALID_MASK)
    values_next = torch.where(ends, batch[VALUES_AFTER], values.roll(-1))
    if drop_last:
        cut = ends & (discounts > 0)
        ends = ends | cut.roll(-1)
        counts = ~cut if counts is None else ~cut & counts
    ratios = (logp - batch[ACTION_LOGP]).exp()
    rho, pg_rho = (ratios if most is None else ratios.clamp(max=most) for most in (clip_rho, clip_pg_rho))
    goes_on, rewards = (~ends).to(values.dtype), batch[REWARDS]
    decays = discounts * lambda_ * ratios.clamp(max=1.0) * goes_on
    decays[-1].zero_()  # what comes round from the front
    corrections, reach = rho * (rewards + discounts * values_next - values), 1
    on_gpu = decays.is_cuda  # where asking for what is left waits for the device longer than all passes take
    while reach < len(corrections) and (on_gpu or bool(decays.any())):  # each adds what lies twice as far ahead
        corrections = corrections + decays * corrections.roll(-reach)
        decays = decays * decays.roll(-reach)
        reach *= 2
    targets_next = values_next + goes_on * corrections.roll(-1)
    return values + corrections, pg_rho * (rewards + discounts * targets_next - values), counts


__all__ = ["DenseVTraceGradients"]
