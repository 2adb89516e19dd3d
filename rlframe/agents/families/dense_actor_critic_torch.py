"""Losses of SAC, DDPG and TD3 and their gradients for dense networks without autograd: the same numbers in less time.

Nothing here is needed to understand these: `SACPolicy` and `DDPGPolicy` say what is computed, and a test holds both to
the same gradients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlframe.data.columns import ACTIONS, DISCOUNTS, NEXT_OBS, OBS, REWARDS, WEIGHTS
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.actor_critic import LOG_STD_MAX, LOG_STD_MIN, bootstrapped, smallest, squashed_gaussian
from rlframe.models.modelv2 import ModelV2
from rlframe.models.spec import Network
from rlframe.models.torch.dense_chain import DenseChain, as_rows
from rlframe.policy.torch.flat import FlatAdam
from rlframe.policy.torch.fused import FusedLoss


class _DenseCritics(FusedLoss):
    """Critics of observation and action, side by side, made of dense layers; see the classes below.

    Args:
        policy: A policy with an actor and critics as its `networks`.

    Raises:
        ValueError: If its networks are not made of dense layers alone.
    """

    def __init__(self, policy: Any) -> None:
        super().__init__(policy)
        self._limit = policy.config.huber_threshold if policy.config.use_huber else math.inf
        targets = policy.target_model if policy.target_networks else policy.model
        self._actor = _chain(policy.model, "actor")
        self._critics = [_chain(policy.model, name) for name in policy.critic_names]
        self._targets = [_chain(targets, name) for name in policy.critic_names]

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
        value: Tensor = smallest([critic(after)[:, 0] for critic in self._targets])
        return value

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


class DenseSACGradients(_DenseCritics):
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
        noise, next_noise = (batch[name] for name in policy.noise_columns)
        obs, next_obs = as_rows(batch[OBS]), as_rows(batch[NEXT_OBS])
        rows, alpha = len(obs), model.log_alpha.exp()
        next_own, next_logp = squashed_gaussian(self._actor(next_obs), next_noise)
        next_value = self._target_value(next_obs, next_own)
        targets = bootstrapped(batch[REWARDS], batch[DISCOUNTS], next_value - alpha * next_logp)
        critic_loss, errors, values = self._fill_critics(torch.cat((obs, batch[ACTIONS]), 1), targets, batch)
        acting = self._actor.forward(obs)
        own, logp = squashed_gaussian(acting[-1], noise)
        own_value, ascent = self._ascent(obs, own)
        slopes = self._own_slopes(acting[-1], own, noise, alpha / rows, ascent / rows)
        self._actor.backward(acting, torch.cat(slopes, 1), input_grad=False)
        surplus = (logp + policy.target_entropy).mean()
        model.log_alpha.grad.copy_(-surplus)
        actor_loss = (alpha * logp - own_value).mean()
        alpha_loss = -model.log_alpha * surplus
        td_error = sum(error.abs() for error in errors) / len(errors)
        output = policy.output(model, actor_loss, critic_loss, alpha_loss, td_error, values, own)
        policy.keep_output(output)
        losses: Mapping[str, Tensor] = output.losses
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


class DenseDDPGGradients(_DenseCritics):
    """Fills the gradients of DDPG's and TD3's losses for an actor and critics of dense layers.

    With B rows:   ∂ actor / ∂μ = −∂Q_1(s, μ) / ∂μ / B

    Args:
        policy: A `DDPGPolicy`.

    Raises:
        ValueError: If its networks are not made of dense layers alone.
    """

    def __init__(self, policy: Any) -> None:
        super().__init__(policy)
        self._target_actor = _chain(policy.target_model, "actor")

    @classmethod
    def _knows(cls, policy: Any) -> bool:
        """Returns whether networks fit: those that are no dense ones are found when the chains are made."""
        del policy
        return True

    def host_state(self) -> tuple[Any, ...] | None:
        """Returns whether the actor steps, and the config's numbers.

        None where bounds of actions are arrays, which are copied to the device.
        """
        policy, config = self._policy, self._policy.config
        if not all(isinstance(bound, float) for bound in policy.bounds):
            return None
        smoothing = config.smooth_target_policy, config.target_noise, config.target_noise_clip
        return (policy.due("actor"), config.l2_reg, *smoothing, *policy.bounds)

    @torch.no_grad()
    def __call__(self, batch: SampleBatch) -> Mapping[str, Tensor]:
        """Fills the gradients, has the policy keep its report, and returns the losses by optimiser, scalars."""
        policy, model = self._policy, self._policy.model
        obs, next_obs = as_rows(batch[OBS]), as_rows(batch[NEXT_OBS])
        next_value = self._target_value(next_obs, policy.target_actions(self._target_actor(next_obs), batch))
        targets = bootstrapped(batch[REWARDS], batch[DISCOUNTS], next_value)
        critic_loss, errors, values = self._fill_critics(torch.cat((obs, batch[ACTIONS]), 1), targets, batch)
        decay = policy.config.l2_reg or 0.0
        actor_loss = self._fill_actor(obs) if policy.due("actor") else None
        if decay:
            for chain in (*self._critics, *(() if actor_loss is None else (self._actor,))):
                chain.add_decay(decay)
        output = policy.output(model, critic_loss, actor_loss, errors[0], values)
        policy.keep_output(output)
        losses: Mapping[str, Tensor] = output.losses
        return losses

    def _fill_actor(self, obs: Tensor) -> Tensor:
        """Fills the actor's gradients, and returns its loss, a scalar."""
        acting = self._actor.forward(obs)
        kept = self._critics[0].forward(torch.cat((obs, acting[-1]), 1))
        slope = self._critics[0].input_gradient(kept, torch.full_like(kept[-1], -1.0 / len(obs)))
        self._actor.backward(acting, slope[:, obs.shape[1] :].contiguous(), input_grad=False)
        return -kept[-1].mean()


def _chain(networks: Any, name: str) -> DenseChain:
    network = getattr(networks, name)
    if not isinstance(getattr(network, "spec", None), Network):
        raise ValueError(f"{name} is a network of the user's own")
    return DenseChain(network, [layer.to_spec() for layer in network.spec.layers])


__all__ = ["DenseDDPGGradients", "DenseSACGradients"]
