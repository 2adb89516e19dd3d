"""SimpleQ in PyTorch: the loss and the policy of the original deep Q-network."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from torch import Tensor

from rlframe.agents.dqn.dense_q_torch import DenseQGradients
from rlframe.agents.dqn.dqn_torch_model import DQNTorchModel, QOutput, functional_q
from rlframe.agents.dqn.q_policy import SimpleQPolicy
from rlframe.data.columns import ACTIONS, DISCOUNTS, NEXT_OBS, OBS, REWARDS
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.torch.q_learning import huber, select_by_action
from rlframe.policy.torch.target import TargetNetwork
from rlframe.policy.torch_policy import LearningRateSchedule, TorchPolicy

Stats = dict[str, Any]


def build_q_losses(policy: SimpleQTorchPolicy, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor:
    """Returns the mean Huber loss of the one-step temporal-difference error, a scalar.

        δ = Q(s, a) − [ r + γ (1 − terminated) · max_a' Q⁻(s', a') ]

    Source: Mnih et al. 2015, "Human-level control through deep reinforcement learning", algorithm 1.
    """
    del model, dist_class
    q_t = policy.online(train_batch[OBS]).q
    with torch.no_grad():
        q_tp1 = policy.target(train_batch[NEXT_OBS]).q
        target = train_batch[REWARDS] + train_batch[DISCOUNTS] * q_tp1.amax(1)
    td_error = select_by_action(q_t, train_batch[ACTIONS]) - target
    policy.keep(td_error, mean_q=q_t.mean(), min_q=q_t.min(), max_q=q_t.max())
    return huber(td_error).mean()


class SimpleQTorchPolicy(SimpleQPolicy, TorchPolicy):
    """A Q-network, a periodically copied target, and exploration on Q-values."""

    model_interface = DQNTorchModel

    def __init__(self, obs_space: gym.Space[Any], action_space: gym.Space[Any], config: dict[str, Any]) -> None:
        self.check_action_space(action_space)
        TorchPolicy.__init__(self, obs_space, action_space, config)
        self.target_network = TargetNetwork(self.model)
        self.target_models = {self.model: self.target_network.model}
        LearningRateSchedule.__init__(self, config["lr"], config["lr_schedule"])
        self._fast_online = functional_q(self.model)
        self._fast_target = functional_q(self.target_network.model)
        self.without_autograd = DenseQGradients.of(self)

    # --- parts ------------------------------------------------------------------------------------------------

    def optimizer(self) -> torch.optim.Optimizer:
        """Returns Adam with `lr` and `adam_epsilon`."""
        return self.adam(self.model.parameters(), lr=self.config["lr"], eps=self.config["adam_epsilon"])

    def online(self, obs: Tensor) -> QOutput:
        """Returns the online network's Q-values of `obs` [B, ...]."""
        if self._fast_online is not None:
            return self._fast_online(obs)
        result: QOutput = self.model.q_values(self.model({OBS: obs, "is_training": True})[0])
        return result

    def target(self, obs: Tensor) -> QOutput:
        """Returns the target network's Q-values of `obs` [B, ...]."""
        if self._fast_target is not None:
            return self._fast_target(obs)
        model = self.target_network.model
        result: QOutput = model.q_values(model({OBS: obs, "is_training": False})[0])
        return result

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

    def keep(self, td_error: Tensor, **stats: Tensor) -> None:
        """Keeps what the loss computed beside the loss, for the learner's report."""
        self.kept = {name: value.detach() for name, value in {"td_error": td_error, **stats}.items()}

    def extra_grad_process(self, optimizer: torch.optim.Optimizer, loss: Tensor) -> Stats:
        """Clips the gradient's global norm to `grad_clip`."""
        return self.clip_gradients(optimizer, self.config["grad_clip"])

    def extra_grad_info(self, train_batch: SampleBatch) -> Stats:
        """Returns `loss` statistics of the batch and the learning rate."""
        return {"cur_lr": self.cur_lr, **{name: value for name, value in self.kept.items() if name != "td_error"}}

    def extra_compute_grad_fetches(self) -> dict[str, Any]:
        """Returns the TD errors of the batch and their mean."""
        if "td_error" not in self.kept:  # a user's own loss kept none
            return {}
        td_error = self.kept["td_error"].cpu().numpy()
        return {"td_error": td_error, "mean_td_error": float(td_error.mean())}


def build_q_models(policy: SimpleQTorchPolicy) -> tuple[Any, Any]:
    """Returns the online and the target model (RLlib's name)."""
    return policy.model, policy.target_network.model


__all__ = ["SimpleQTorchPolicy", "build_q_losses", "build_q_models"]
