"""Losses of DDPG and TD3 and their gradients for dense networks without autograd: the same numbers in less time.

Nothing here is needed to understand these: `DDPGPolicy` says what is computed, and a test holds both to the same
gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlframe.agents.families.dense_actor_critic_torch import DenseCritics, chain_of
from rlframe.data.columns import ACTIONS, DISCOUNTS, NEXT_OBS, OBS, REWARDS
from rlframe.data.sample_batch import SampleBatch
from rlframe.fast.dense_torch import as_rows


class DenseDDPGGradients(DenseCritics):
    """Fills the gradients of DDPG's and TD3's losses for an actor and critics of dense layers.

    With B rows:   ∂ actor / ∂μ = −∂Q_1(s, μ) / ∂μ / B

    Args:
        policy: A `DDPGPolicy`.

    Raises:
        ValueError: If its networks are not made of dense layers alone.
    """

    def __init__(self, policy: Any) -> None:
        super().__init__(policy)
        self._target_actor = chain_of(policy.target_model, "actor")

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
        targets = batch[REWARDS] + batch[DISCOUNTS] * next_value
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
