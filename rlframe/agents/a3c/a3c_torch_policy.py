"""A2C and A3C in PyTorch: the loss and the policy."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlframe.agents.a3c.a3c_policy import A3CPolicy
from rlframe.data.columns import ACTIONS, ADVANTAGES, VALUE_TARGETS
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.masking import valid_mean, valid_rows
from rlframe.losses.policy_gradients import explained_variance, policy_gradient
from rlframe.policy.torch_policy import TorchPolicy

Stats = dict[str, Any]


def actor_critic_loss(policy: A3CTorchPolicy, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor:
    """Returns the loss of one batch, a scalar.

        mean[ −log π(a|s) A + c_v ½ (V − R)² − c_e H(π) ]

    RLlib summed over the rows; with a mean, the length of a step does not depend on the size of the batch. Padding rows
    of recurrent batches do not count.

    Source: Mnih et al. 2016, "Asynchronous Methods for Deep Reinforcement Learning", section 4.
    """
    dist_inputs, _ = model(train_batch)
    dist, targets = dist_class(dist_inputs, model), train_batch[VALUE_TARGETS]
    mean, valid = valid_mean(train_batch), valid_rows(train_batch)
    policy_loss = mean(policy_gradient(dist.logp(train_batch[ACTIONS]), train_batch[ADVANTAGES]))
    values = model.value_function()
    if policy.config["use_critic"]:
        vf_loss = 0.5 * mean((values - targets).square())
    else:
        vf_loss = torch.zeros_like(policy_loss)
    entropy = mean(dist.entropy())
    total: Tensor = policy_loss + policy.config["vf_loss_coeff"] * vf_loss - policy.entropy_coeff * entropy
    policy.keep(
        policy_loss=policy_loss,
        vf_loss=vf_loss,
        policy_entropy=entropy,
        vf_explained_var=explained_variance(valid(targets), valid(values.detach())),
    )
    return total


class A3CTorchPolicy(A3CPolicy, TorchPolicy):
    """An actor with a critic, trained on advantages."""

    def __init__(self, obs_space: Any, action_space: Any, config: dict[str, Any]) -> None:
        self._loss_outputs: Stats = {}
        self.setup_mixins(config)
        TorchPolicy.__init__(self, obs_space, action_space, config)

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor:
        """Returns the loss of one batch; see `actor_critic_loss`."""
        return actor_critic_loss(self, model, dist_class, train_batch)

    def extra_grad_process(self, optimizer: torch.optim.Optimizer, loss: Tensor) -> Stats:
        """Clips the gradient's global norm to `grad_clip`."""
        return self.clip_gradients(optimizer, self.for_means(self.config["grad_clip"]))

    def extra_grad_info(self, train_batch: SampleBatch) -> Stats:
        """Returns losses, entropy and explained variance, all means over the rows."""
        return {"cur_lr": self.cur_lr, "entropy_coeff": self.entropy_coeff, **self._loss_outputs}


__all__ = ["A3CTorchPolicy", "actor_critic_loss"]
