"""The gradients of CQL's losses for dense networks without autograd: the same numbers in less time.

Nothing here is needed to understand CQL: `CQLPolicy` says what is computed, and a test holds both to the same
gradients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlframe.agents.families.dense_actor_critic_torch import DenseSACGradients
from rlframe.agents.sac.cql_policy import NEXT_OWN_NOISE, OWN_NOISE, UNIFORM
from rlframe.data.columns import ACTIONS, DISCOUNTS, NEXT_OBS, OBS, REWARDS, WEIGHTS
from rlframe.data.sample_batch import SampleBatch
from rlframe.fast.dense_torch import DenseChain, as_rows
from rlframe.losses.actor_critic import bootstrapped, gaussian_statistics, squashed_gaussian
from rlframe.models.dist_plan import LOG_DENSITY_MAX, SMALL
from rlframe.models.gaussian import HALF_LOG_2PI

#: Numbers of the widest layer of compared actions that pass a critic at once: they stay in the processor's cache from
#: one layer to the next, where those of all 7,680 actions of a batch of 256 rows would go through memory.
PIECE = 1 << 17


class DenseCQLGradients(DenseSACGradients):
    """Fills the gradients of CQL's losses for a squashed Gaussian and critics of dense layers.

    With w = α' c, softmax over the compared actions of a row, and B rows:

        ∂ penalty / ∂Q(s, a_j) = w softmax_j((Q(s, a_j) − log p_j) / T) / B,    ∂ penalty / ∂Q(s, a) = −w / B

    While the actor clones, with z = artanh a of the data's action:

        −∂ log π(a|s) / ∂μ = −(z − μ) / σ²,    −∂ log π(a|s) / ∂ log σ = 1 − (z − μ)² / σ²

    Args:
        policy: A `CQLPolicy`.

    Raises:
        ValueError: If its networks are not made of dense layers alone.
    """

    def host_state(self) -> tuple[Any, ...] | None:
        """Returns what SAC's does, with the penalty's numbers; None while the actor clones, which is a short time."""
        numbers, config = super().host_state(), self._policy.config
        if numbers is None or self._policy.cloning:
            return None
        return (*numbers, config.min_q_weight, config.temperature, config.lagrangian, config.lagrangian_thresh)

    @torch.no_grad()
    def __call__(self, batch: SampleBatch) -> Mapping[str, Tensor]:
        """Fills the gradients, has the policy keep its report, and returns the losses by optimiser, scalars."""
        policy, model = self._policy, self._policy.model
        noise, next_noise = (batch[name] for name in policy.noise_columns[:2])
        obs, next_obs = as_rows(batch[OBS]), as_rows(batch[NEXT_OBS])
        acting, next_inputs = self._actor.forward(obs), self._actor(next_obs)
        next_own, _ = squashed_gaussian(next_inputs, next_noise)
        targets = bootstrapped(batch[REWARDS], batch[DISCOUNTS], self._target_value(next_obs, next_own))
        compared = self._compared(batch, obs, acting[-1], next_inputs)
        critic_loss, td_error, values, penalty = self._fill_distrustful(obs, targets, batch, compared)
        own, logp = squashed_gaussian(acting[-1], noise)
        actor_loss = self._fill_actor(batch, acting, own, logp)
        surplus = (logp + policy.target_entropy).mean()
        model.log_alpha.grad.copy_(-surplus)
        alpha_loss = -model.log_alpha * surplus
        made = policy.output(model, actor_loss, critic_loss, alpha_loss, td_error, values, own)
        output = policy.with_penalty(model, made, actor_loss, penalty)
        if policy.config.lagrangian:
            weight = model.log_alpha_prime.exp()
            held = weight != policy.penalty_weight(model)  # no gradient beyond the limit
            model.log_alpha_prime.grad.copy_(torch.where(held, 0.0, output.losses["alpha_prime"]))
        policy.keep_output(output)
        losses: Mapping[str, Tensor] = output.losses
        return losses

    def _compared(self, batch: SampleBatch, obs: Tensor, inputs: Tensor, next_inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the compared actions behind their observations `[B, M, D + A]`, and their log-densities `[B, M]`.

        Args:
            batch: Its columns of noise are read.
            obs: Float `[B, D]`.
            inputs: What the actor says of them, float `[B, 2A]`.
            next_inputs: What it says of the next ones, float `[B, 2A]`.
        """
        rows, size = batch[ACTIONS].reshape(len(obs), -1).shape
        uniform = batch[UNIFORM].reshape(rows, -1, size)
        count = uniform.shape[1]
        actions, densities = [uniform], [obs.new_full((rows, count), -size * math.log(2.0))]
        for said, noise in ((inputs, OWN_NOISE), (next_inputs, NEXT_OWN_NOISE)):
            drawn, logp = squashed_gaussian(said.repeat_interleave(count, 0), batch[noise].reshape(-1, size))
            actions.append(drawn.reshape(rows, count, size))
            densities.append(logp.reshape(rows, count))
        every = torch.cat(actions, 1)
        return torch.cat((obs.unsqueeze(1).expand(-1, every.shape[1], -1), every), 2), torch.cat(densities, 1)

    def _fill_distrustful(
        self, obs: Tensor, targets: Tensor, batch: SampleBatch, compared: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Fills the critics' gradients.

        Args:
            obs: Float `[B, D]`.
            targets: Float `[B]`.
            batch: Its actions and importance weights are read.
            compared: What `_compared` returned.

        Returns:
            The sum of the TD losses, the TD errors' mean size `[B]`, the first critic's values `[B]`, and the mean
            penalty of a critic times `min_q_weight`.
        """
        config, rows = self._policy.config, len(obs)
        pull = obs.new_full((), config.min_q_weight / rows)
        if config.lagrangian:
            pull = pull * self._policy.penalty_weight(self._policy.model)
        x = torch.cat((obs, batch[ACTIONS].reshape(rows, -1)), 1)
        zero = obs.new_zeros(())
        total, size, penalty, first = zero, zero, zero, targets
        for index, critic in enumerate(self._critics):
            kept = critic.forward(x)
            values = kept[-1][:, 0]
            error = values - targets
            slope, per_row = self._error_slope(error, batch.get(WEIGHTS))
            critic.backward(kept, (2.0 / rows * slope - pull).unsqueeze(1), input_grad=False)
            highest = self._add_compared(critic, *compared, pull, PIECE // max(layer.shape[1] for layer in kept))
            penalty = penalty + highest / rows - values.mean()
            total, size = total + per_row.mean(), size + error.abs()
            first = values if index == 0 else first
        count = len(self._critics)
        return total, size / count, first, config.min_q_weight * penalty / count

    def _add_compared(self, critic: DenseChain, x: Tensor, log_densities: Tensor, pull: Tensor, piece: int) -> Tensor:
        """Adds the gradient of what a critic says of the compared actions.

        Args:
            critic: The critic.
            x: Float `[B, M, D + A]`.
            log_densities: Float `[B, M]`.
            pull: w / B, a scalar.
            piece: How many compared actions pass at once.

        Returns:
            The sum over rows of T log Σ_j exp((Q_j − log p_j) / T), a scalar.
        """
        temperature, count = self._policy.config.temperature, x.shape[1]
        total = x.new_zeros(())
        step = max(1, piece // count)
        for seen, densities in zip(x.split(step), log_densities.split(step), strict=True):
            kept = critic.forward(seen.reshape(-1, seen.shape[2]))
            scaled = (kept[-1].reshape(-1, count) - densities) / temperature
            highest = scaled.logsumexp(1, keepdim=True)
            slope = (scaled - highest).exp_().mul_(pull)
            critic.backward(kept, slope.reshape(-1, 1), input_grad=False, add=True)
            total += temperature * highest.sum()
        return total

    def _fill_actor(self, batch: SampleBatch, acting: list[Tensor], own: Tensor, logp: Tensor) -> Tensor:
        """Fills the actor's gradients, and returns its loss, a scalar.

        Args:
            batch: Its observations, actions and noise are read.
            acting: The actor's outputs, layer by layer.
            own: Actions drawn, float `[B, A]`.
            logp: Their log-densities, float `[B]`.
        """
        policy, rows = self._policy, len(own)
        alpha: Tensor = policy.model.log_alpha.exp()
        noise = batch[policy.noise_columns[0]]
        if policy.cloning:
            by_mean, by_log_std = self._own_slopes(acting[-1], own, noise, alpha / rows, torch.zeros_like(own))
            for slopes, more in zip((by_mean, by_log_std), self._cloning_slopes(acting[-1], batch), strict=True):
                slopes += more
            value: Tensor = policy.dist_class(acting[-1], policy.model).logp(batch[ACTIONS])
        else:
            value, ascent = self._ascent(acting[0], own)
            by_mean, by_log_std = self._own_slopes(acting[-1], own, noise, alpha / rows, ascent / rows)
        self._actor.backward(acting, torch.cat((by_mean, by_log_std), 1), input_grad=False)
        return (alpha * logp - value).mean()

    @staticmethod
    def _cloning_slopes(inputs: Tensor, batch: SampleBatch) -> tuple[Tensor, Tensor]:
        """Returns the gradients of mean[−log π(a|s)] of the data's actions by μ and by log σ. Float `[B, A]` each.

        Args:
            inputs: The actor's outputs, μ and log σ before its limits `[B, 2A]`.
            batch: Its actions are read.
        """
        mean, log_std = gaussian_statistics(inputs)
        std, rows = log_std.exp(), len(mean)
        raw = batch[ACTIONS].reshape(mean.shape).clamp(-1.0 + SMALL, 1.0 - SMALL).atanh()
        distance = (raw - mean) / std
        within = log_std == inputs[:, mean.shape[1] :]  # no gradient beyond the limits
        limited = (0.5 * distance.square() + log_std + HALF_LOG_2PI).abs() <= LOG_DENSITY_MAX  # nor beyond that of logp
        return -distance / std / rows * limited, (1.0 - distance.square()) / rows * (within & limited)


__all__ = ["DenseCQLGradients"]
