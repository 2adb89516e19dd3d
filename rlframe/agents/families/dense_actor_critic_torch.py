"""Losses of SAC and their gradients for dense networks without autograd, and what DDPG and TD3 share with them.

Nothing here is needed to understand these: `SACPolicy` says what is computed, and a test holds both to the same
gradients.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from rlframe.data.columns import ACTIONS, DISCOUNTS, NEXT_OBS, OBS, REWARDS, WEIGHTS
from rlframe.data.sample_batch import SampleBatch
from rlframe.fast.dense_torch import DenseChain, as_rows
from rlframe.losses.actor_critic import LOG_STD_MAX, LOG_STD_MIN
from rlframe.models.gaussian import HALF_LOG_2PI
from rlframe.models.modelv2 import ModelV2
from rlframe.models.spec import Network
from rlframe.policy.parts import LossOutput
from rlframe.policy.torch.flat import FlatAdam
from rlframe.policy.torch.fused import FusedLoss


class DenseCritics(FusedLoss):
    """Critics of observation and action, side by side, made of dense layers; see the classes that learn with them.

    Args:
        policy: A policy with an actor and critics as its `networks`.

    Raises:
        ValueError: If its networks are not made of dense layers alone.
    """

    def __init__(self, policy: Any) -> None:
        super().__init__(policy)
        self._limit = policy.config.huber_threshold if policy.config.use_huber else math.inf
        targets = policy.target_model if policy.target_networks else policy.model
        self._actor = chain_of(policy.model, "actor")
        self._critics = [chain_of(policy.model, name) for name in policy.critic_names]
        self._targets = [chain_of(targets, name) for name in policy.critic_names]

    @classmethod
    def knows(cls, policy: Any) -> bool:
        """Returns whether the policy need not go by autograd.

        It must where `_knows` says so, with an encoder, a model that adds to the loss, and where parameters do not
        share their optimiser's buffer.
        """
        model = policy.model
        plain = cls._knows(policy) and model.encoder is None and type(model).custom_loss is ModelV2.custom_loss
        flat = len(policy._optimizers) == len(policy.optimizer_specs)
        return plain and flat and all(isinstance(made, FlatAdam) for made in policy._optimizers)

    @classmethod
    def _knows(cls, policy: Any) -> bool:
        """Returns whether the equations are those of the policy, as it is configured."""
        raise NotImplementedError

    def _target_value(self, next_obs: Tensor, actions: Tensor) -> Tensor:
        """Returns the smallest of the target critics' values. Float [B]."""
        after = torch.cat((next_obs, actions), 1)
        return functools.reduce(torch.minimum, [critic(after)[:, 0] for critic in self._targets])

    def _fill_critics(self, x: Tensor, targets: Tensor, batch: SampleBatch) -> tuple[Tensor, list[Tensor], Tensor]:
        """Fills the critics' gradients; returns the sum of losses, each one's TD errors [B], the first's values [B].

        Args:
            x: Observations and the actions taken, side by side [B, n].
            targets: Float [B].
            batch: Its importance weights are read.
        """
        weights, rows = batch.get(WEIGHTS), len(targets)
        total, errors, first = targets.new_zeros(()), [], targets
        for index, critic in enumerate(self._critics):
            kept = critic.forward(x)
            values = kept[-1][:, 0]
            error = values - targets
            slope, per_row = self._error_slope(error, weights)
            critic.backward(kept, (slope / rows).unsqueeze(1), input_grad=False)
            total = total + per_row.mean()
            errors.append(error)
            first = values if index == 0 else first
        return total, errors, first

    def _error_slope(self, error: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns the slope of each row's loss by its TD error, and the loss. Float [B] each."""
        # The slope of huber(δ) is δ within ±limit, and ±limit beyond; the loss follows from the slope.
        slope = error.clamp(-self._limit, self._limit)
        per_row = slope * (error - 0.5 * slope)
        return (slope, per_row) if weights is None else (weights * slope, weights * per_row)


class DenseSACGradients(DenseCritics):
    """Fills the gradients of SAC's losses for a squashed Gaussian and critics of dense layers.

    With z = μ + σε, a = tanh z, g = ∂ min_i Q_i(s, a) / ∂a and B rows:

        ∂ log π / ∂z = 2a,    ∂ log π / ∂ log σ = −1 + 2a σε
        ∂ actor / ∂μ = (2αa − g (1 − a²)) / B,    ∂ actor / ∂ log σ = −α / B + σε ∂ actor / ∂μ

    Args:
        policy: A `SACPolicy`.

    Raises:
        ValueError: If its networks are not made of dense layers alone.
    """

    @classmethod
    def _knows(cls, policy: Any) -> bool:
        """Returns whether actions are continuous, and critics tell means and have no normalisation."""
        config = policy.config
        return not policy.discrete and config["n_quantiles"] == 1 and not config["critic_batch_norm"]

    def host_state(self) -> tuple[Any, ...] | None:
        """Returns the entropy that α aims at; None where a program keeps it in a tensor."""
        aim = self._policy.target_entropy
        return (aim,) if isinstance(aim, float) else None

    @torch.no_grad()
    def __call__(self, batch: SampleBatch) -> Mapping[str, Tensor]:
        """Fills the gradients, has the policy keep its report, and returns the losses by optimiser, scalars."""
        policy, model = self._policy, self._policy.model
        noise, next_noise = (batch[name] for name in policy.noise_columns[:2])
        obs, next_obs = as_rows(batch[OBS]), as_rows(batch[NEXT_OBS])
        rows, alpha = len(obs), model.log_alpha.exp()
        next_own, next_logp = _drawn(self._actor(next_obs), next_noise)
        next_value = self._target_value(next_obs, next_own)
        targets = batch[REWARDS] + batch[DISCOUNTS] * (next_value - alpha * next_logp)
        critic_loss, errors, values = self._fill_critics(torch.cat((obs, batch[ACTIONS]), 1), targets, batch)
        acting = self._actor.forward(obs)
        own, logp = _drawn(acting[-1], noise)
        own_value, ascent = self._ascent(obs, own)
        slopes = self._own_slopes(acting[-1], own, noise, alpha / rows, ascent / rows)
        self._actor.backward(acting, torch.cat(slopes, 1), input_grad=False)
        surplus = (logp + policy.target_entropy).mean()
        model.log_alpha.grad.copy_(-surplus)
        actor_loss = (alpha * logp - own_value).mean()
        alpha_loss = -model.log_alpha * surplus
        td_error = sum(error.abs() for error in errors) / len(errors)
        log_alpha = model.log_alpha + 0.0  # not the variable itself, which is about to move
        losses = {"actor": actor_loss, "critic": critic_loss, "alpha": alpha_loss}
        stats = {
            "actor_loss": actor_loss,
            "critic_loss": critic_loss / len(self._critics),
            "alpha_loss": alpha_loss,
            "alpha_value": alpha,
            "log_alpha_value": log_alpha,
            "target_entropy": torch.zeros_like(log_alpha) + policy.target_entropy,
            "policy_t": own.mean(),
            "mean_q": values.mean(),
            "max_q": values.max(),
            "min_q": values.min(),
        }
        policy.keep_output(LossOutput(losses, stats, {"td_error": td_error}))
        return losses

    def _ascent(self, obs: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the smallest of the critics' values [B] of actions, and its gradient by the actions [B, A]."""
        x = torch.cat((obs, own), 1)
        kept = [critic.forward(x) for critic in self._critics]
        values = torch.cat([made[-1] for made in kept], 1)
        least, index = values.min(1, keepdim=True)
        chosen = torch.zeros_like(values).scatter_(1, index, 1.0)
        slope = torch.zeros_like(own)
        for number, (critic, made) in enumerate(zip(self._critics, kept, strict=True)):
            slope += critic.input_gradient(made, chosen[:, number : number + 1])[:, obs.shape[1] :]
        return least[:, 0], slope

    def _own_slopes(
        self, inputs: Tensor, own: Tensor, noise: Tensor, alpha: Tensor, ascent: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns the gradients of the actor's loss by μ and by log σ. Float [B, A] each.

        Args:
            inputs: The actor's outputs, μ and log σ before its limits [B, 2A].
            own: Actions drawn, float [B, A].
            noise: What they were drawn with, float [B, A].
            alpha: α / B.
            ascent: Gradient of the critics' value by the actions, over B. Float [B, A].
        """
        raw = inputs[:, own.shape[1] :]
        log_std = raw.clamp(LOG_STD_MIN, LOG_STD_MAX)
        by_mean = 2.0 * alpha * own - ascent * (1.0 - own.square())
        by_log_std = (by_mean * log_std.exp() * noise - alpha) * (raw == log_std)  # no gradient beyond the limits
        return by_mean, by_log_std


def _drawn(inputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Returns actions [B, A] and their log-densities [B] of the actor's outputs [B, 2A]; see `squashed_gaussian`."""
    mean, log_std = inputs.chunk(2, 1)
    log_std = log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)
    z = mean + log_std.exp() * noise
    normal = -0.5 * noise.square() - log_std - HALF_LOG_2PI
    slope = 2.0 * (math.log(2.0) - z - functional.softplus(-2.0 * z))
    return z.tanh(), (normal - slope).sum(-1)


def chain_of(networks: Any, name: str) -> DenseChain:
    """Returns the layers of one of a policy's networks; a ValueError where it is a network of the user's own."""
    network = getattr(networks, name)
    if not isinstance(getattr(network, "spec", None), Network):
        raise ValueError(f"{name} is a network of the user's own")
    return DenseChain(network, [layer.to_spec() for layer in network.spec.layers])


__all__ = ["DenseCritics", "DenseSACGradients", "chain_of"]
