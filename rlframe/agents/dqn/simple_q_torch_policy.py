"""SimpleQ in PyTorch: the networks and the optimiser; see `simple_q_policy`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor

from rlframe.agents.dqn.dense_q_torch import DenseQGradients
from rlframe.agents.dqn.dqn_torch_model import DQNTorchModel, QOutput, functional_q, q_output
from rlframe.agents.dqn.q_policy import QTargetPolicy
from rlframe.agents.dqn.simple_q_policy import SimpleQPolicy, build_q_losses
from rlframe.policy.torch.target import TargetNetwork
from rlframe.policy.torch_policy import LearningRateSchedule, TorchPolicy

Stats = dict[str, Any]


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

    def extra_grad_process(self, optimizer: torch.optim.Optimizer, loss: Tensor) -> Stats:
        """Clips the gradient's global norm to `grad_clip`."""
        return self.clip_gradients(optimizer, self.config["grad_clip"])


__all__ = ["SimpleQTorchPolicy", "TargetNetworkMixin", "build_q_losses"]
