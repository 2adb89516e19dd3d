"""QMIX in PyTorch: the loss on whole sequences, and the policy."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from torch import Tensor

from rlframe.agents.qmix.qmix_policy import MEMBER_REWARDS, QMixPolicy
from rlframe.agents.qmix.qmix_torch_model import QMixTorchModel
from rlframe.data.columns import ACTIONS, DISCOUNTS, NEXT_OBS, OBS, REWARDS, SEQ_LENS
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.masking import valid_mean
from rlframe.models.catalog import ModelCatalog
from rlframe.models.modelv2 import states_of
from rlframe.policy.torch.flat import flatten_parameters
from rlframe.policy.torch.target import TargetNetwork
from rlframe.policy.torch_policy import LearningRateSchedule, TorchPolicy
from rlframe.utils.numpy import FLOAT_MIN

Stats = dict[str, Any]


def chosen_values(q: Tensor, actions: Tensor) -> Tensor:
    """Returns the values `[..., N]` of the actions taken, int `[..., N]`, among all, `[..., N, A]`."""
    return q.gather(-1, actions.long().unsqueeze(-1)).squeeze(-1)


def best_values(q: Tensor, selector: Tensor, valid: Tensor | None) -> Tensor:
    """Returns each agent's value of the valid action that a selector ranks highest.

    Args:
        q: Values that evaluate. Float `[..., N, A]`.
        selector: Values that select: `q` itself, or the online network's for double Q-learning. Float `[..., N, A]`.
        valid: Valid actions, bool `[..., N, A]`; None for all. Where an agent has none (a last observation, padding),
            all count: nobody acts there.

    Returns:
        Float `[..., N]`.
    """
    if valid is not None:
        valid = valid | ~valid.any(dim=-1, keepdim=True)
        selector = selector.masked_fill(~valid, FLOAT_MIN)
    return chosen_values(q, selector.argmax(dim=-1))


def qmix_loss(policy: QMixTorchPolicy, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor:
    """Returns the mean squared temporal-difference error of the mixed values over steps that are no padding, a scalar.

        δ_t = Q_tot(τ_t, u_t, s_t) − [ r_t + γ (1 − terminated) · Q⁻_tot(τ_{t+1}, u*, s_{t+1}) ]
        u*_i = argmax_u Q_i(τ_{t+1}, u)   (the target network's Q_i without `double_q`)

    The networks run once over the T + 1 observations of each sequence, so both ends of a step see the same history.
    Without a mixer δ is each agent's own, with its own reward, and the mean is over agents, too.

    Source: Rashid et al. 2018, eq. 6; van Hasselt et al. 2016 for the double estimate.
    """
    del dist_class
    sequences = len(train_batch[SEQ_LENS])

    def by_step(column: Tensor) -> Tensor:
        return column.reshape(sequences, -1, *column.shape[1:])

    obs, next_obs = by_step(train_batch[OBS]), by_step(train_batch[NEXT_OBS])
    history = torch.cat([obs[:, :1], next_obs], dim=1)
    q, _ = model.agent_values(history, states_of(train_batch))
    total = model.mix(chosen_values(q[:, :-1], by_step(train_batch[ACTIONS])), obs)
    with torch.no_grad():
        target = policy.target_network.model
        q_tp1 = target.agent_values(history, states_of(train_batch))[0][:, 1:]
        selector = q[:, 1:].detach() if policy.config["double_q"] else q_tp1
        best = best_values(q_tp1, selector, policy.layout.valid_actions(next_obs))
        rewards = by_step(train_batch[REWARDS]).unsqueeze(-1) if policy.mixes else by_step(train_batch[MEMBER_REWARDS])
        aim = rewards + by_step(train_batch[DISCOUNTS]).unsqueeze(-1) * target.mix(best, next_obs)
    mean = valid_mean(train_batch)
    td_error = (total - aim).flatten(0, 1)
    loss: Tensor = mean(td_error.square())
    policy.keep(
        loss=loss,
        td_error_abs=mean(td_error.abs()),
        q_taken_mean=mean(total.flatten(0, 1)),
        target_mean=mean(aim.flatten(0, 1)),
    )
    return loss


class QMixTorchPolicy(QMixPolicy, TorchPolicy):
    """A group's agents with one recurrent network, a mixer of their values, and a target copy of both."""

    def __init__(self, obs_space: gym.Space[Any], action_space: gym.Space[Any], config: dict[str, Any]) -> None:
        self.read_spaces(obs_space, action_space, config)
        TorchPolicy.__init__(self, obs_space, action_space, config)
        self.target_network = TargetNetwork(self.model)
        self.target_models = {self.model: self.target_network.model}
        LearningRateSchedule.__init__(self, config["lr"], config["lr_schedule"])

    def make_model_and_dist(self) -> tuple[Any, Any]:
        """Returns the agents' network with its mixer, and the distribution of the group's actions."""
        dist_class, num_outputs = ModelCatalog.get_action_dist(self.action_space, framework="torch")
        model = QMixTorchModel(
            self.observation_space,
            self.action_space,
            num_outputs,
            self.config["model"],
            "group",
            layout=self.layout,
            mixer=self.config["mixer"],
            mixing_embed_dim=int(self.config["mixing_embed_dim"]),
        )
        return model, dist_class

    def optimizer(self) -> torch.optim.Optimizer:
        """Returns RMSProp with `lr`, `optim_alpha` and `optim_eps` over agents' network and mixer in one buffer."""
        parameters = list(self.model.parameters())
        self._flat_parameters = flatten_parameters(parameters)
        flat = parameters if self._flat_parameters is None else [self._flat_parameters.param]
        config = self.config
        return torch.optim.RMSprop(flat, lr=config["lr"], alpha=config["optim_alpha"], eps=config["optim_eps"])

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor:
        """Returns the loss of one batch; see `qmix_loss`."""
        return qmix_loss(self, model, dist_class, train_batch)

    def extra_grad_process(self, optimizer: torch.optim.Optimizer, loss: Tensor) -> Stats:  # noqa: ARG002 - a hook
        """Clips the gradient's global norm to `grad_clip`."""
        return self.clip_gradients(optimizer, self.config["grad_clip"])

    def extra_grad_info(self, train_batch: SampleBatch) -> Stats:  # noqa: ARG002 - a hook
        """Returns the loss, means of errors, values and targets over the steps that count, and the learning rate."""
        return {"cur_lr": self.cur_lr, **self._loss_outputs}


__all__ = ["QMixTorchPolicy", "best_values", "chosen_values", "qmix_loss"]
