"""SimpleQ in PyTorch: the loss and the policy of the original deep Q-network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor

from rlframe.agents.dqn.dense_q_torch import DenseQGradients
from rlframe.agents.dqn.dqn_torch_model import DQNTorchModel, QOutput, functional_q, q_output
from rlframe.agents.dqn.q_policy import QTargetPolicy, SimpleQPolicy
from rlframe.data.columns import ACTIONS, DISCOUNTS, NEXT_OBS, OBS, REWARDS
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.q_learning import huber, select_by_action
from rlframe.policy.torch.target import TargetNetwork
from rlframe.policy.torch_policy import LearningRateSchedule, TorchPolicy

Stats = dict[str, Any]


def build_q_losses(policy: SimpleQTorchPolicy, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor:
    """Returns the mean Huber loss of the one-step temporal-difference error, a scalar.

        δ = Q(s, a) − [ r + γ (1 − terminated) · max_a' Q⁻(s', a') ]

    Source: Mnih et al. 2015, "Human-level control through deep reinforcement learning", algorithm 1.
    """
    del dist_class
    q_t = policy.online(train_batch[OBS]).q
    with torch.no_grad():
        q_tp1 = policy.target(train_batch[NEXT_OBS]).q
        target = train_batch[REWARDS] + train_batch[DISCOUNTS] * q_tp1.amax(1)
    td_error = select_by_action(q_t, train_batch[ACTIONS]) - target
    model.tower_stats["td_error"] = td_error.detach()
    policy.keep(td_error=td_error, mean_q=q_t.mean(), min_q=q_t.min(), max_q=q_t.max())
    loss: Tensor = huber(td_error).mean()
    return loss


class TargetNetworkMixin(QTargetPolicy):
    """A Q-network and the copy of it that targets come from; also for policies that are made of functions.

    Call the constructor when the policy's model exists: in `before_loss_init` or `after_init`. A `target_model` that
    was built with the model becomes the copy. A loss that runs before finds the copy, too.
    """

    _fast_online: Callable[[Tensor], QOutput] | None = None
    _fast_target: Callable[[Tensor], QOutput] | None = None

    def __init__(self, obs_space: Any = None, action_space: Any = None, config: Any = None) -> None:
        self._make_target()
        self.update_target()

    def _make_target(self) -> None:
        if "target_network" not in self.__dict__:
            self.target_network = TargetNetwork(self.model, self.target_model)
            self.target_model = self.target_network.model
            self.target_models = {self.model: self.target_model}
            self._fast_online = functional_q(self.model)
            self._fast_target = functional_q(self.target_model)

    def online(self, obs: Tensor) -> QOutput:
        """Returns the online network's Q-values of `obs` [B, ...]."""
        return self._fast_online(obs) if self._fast_online is not None else q_output(self.model, obs, training=True)

    def target(self, obs: Tensor) -> QOutput:
        """Returns the target network's Q-values of `obs` [B, ...]."""
        if self._fast_target is not None:
            return self._fast_target(obs)
        self._make_target()
        return q_output(self.target_network.model, obs, training=False)


class SimpleQTorchPolicy(SimpleQPolicy, TargetNetworkMixin, TorchPolicy):
    """A Q-network, a periodically copied target, and exploration on Q-values."""

    model_interface = DQNTorchModel

    def __init__(self, obs_space: gym.Space[Any], action_space: gym.Space[Any], config: dict[str, Any]) -> None:
        self.check_action_space(action_space)
        TorchPolicy.__init__(self, obs_space, action_space, config)
        TargetNetworkMixin.__init__(self)
        LearningRateSchedule.__init__(self, config["lr"], config["lr_schedule"])
        self.without_autograd = DenseQGradients.of(self)

    # --- parts ------------------------------------------------------------------------------------------------

    def optimizer(self) -> torch.optim.Optimizer:
        """Returns Adam with `lr` and `adam_epsilon`."""
        return self.adam(self.model.parameters(), lr=self.config["lr"], eps=self.config["adam_epsilon"])

    # --- acting -----------------------------------------------------------------------------------------------

    def dist_inputs(self, obs: Tensor) -> Tensor:
        """Returns Q-values [B, A] for a tensor of preprocessed observations [B, ...]."""
        q: Tensor = self.model.q_values(self.model({OBS: obs, "is_training": False}, [], None)[0]).q
        return q

    def _dist_inputs(self, batch: SampleBatch, explore: bool, step: int) -> tuple[Tensor, Any, list[Tensor]]:
        del step, explore
        return self.model.q_values(self.model(batch, [], None)[0]).q, self.dist_class, []

    # --- learning ---------------------------------------------------------------------------------------------

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor:
        """Returns the loss of one batch; see `build_q_losses`."""
        return build_q_losses(self, model, dist_class, train_batch)

    def extra_grad_process(self, optimizer: torch.optim.Optimizer, loss: Tensor) -> Stats:
        """Clips the gradient's global norm to `grad_clip`."""
        return self.clip_gradients(optimizer, self.config["grad_clip"])

    def extra_grad_info(self, train_batch: SampleBatch) -> Stats:
        """Returns `loss` statistics of the batch and the learning rate."""
        return {
            "cur_lr": self.cur_lr,
            **{name: value for name, value in self._loss_outputs.items() if name != "td_error"},
        }

    def extra_compute_grad_fetches(self) -> dict[str, Any]:
        """Returns the TD errors of the batch and their mean."""
        if "td_error" not in self._loss_outputs:  # a user's own loss kept none
            return {}
        td_error = self._loss_outputs["td_error"].cpu().numpy()
        return {"td_error": td_error, "mean_td_error": float(td_error.mean())}


__all__ = ["SimpleQTorchPolicy", "TargetNetworkMixin", "build_q_losses"]
