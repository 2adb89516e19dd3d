"""SimpleQ in TensorFlow: the networks and the optimiser; see `simple_q_policy`."""

from __future__ import annotations

from typing import Any, TypeAlias

import gymnasium as gym

from rlframe.agents.dqn.dqn_tf_model import DQNTFModel, QOutput, q_output
from rlframe.agents.dqn.q_policy import QTargetPolicy
from rlframe.agents.dqn.simple_q_policy import SimpleQPolicy, build_q_losses
from rlframe.policy.tf.adam import Adam
from rlframe.policy.tf.target import TargetNetwork
from rlframe.policy.tf_policy import LearningRateSchedule, TFPolicy
from rlframe.utils.quiet_tf import tf

Stats = dict[str, Any]
Tensor: TypeAlias = Any


class TargetNetworkMixin(QTargetPolicy):
    """A Q-network and the copy of it that targets come from; also for policies that are made of functions.

    Call the constructor when the policy's model exists: in `before_loss_init` or `after_init`. A `target_model` that
    was built with the model becomes the copy. A loss that runs before finds the copy, too.
    """

    def __init__(self: Any, obs_space: Any = None, action_space: Any = None, config: Any = None) -> None:
        self._make_target()
        self.update_target()

    def _make_target(self: Any) -> None:
        if "target_network" not in self.__dict__:
            if self.target_model is None:
                with tf.device(self.device), self.seeded("target"):
                    self.target_model = self.make_model_and_dist()[0]
            self.target_network = TargetNetwork(self.model, self.target_model)
            self.target_models = {self.model: self.target_model}

    def online(self, obs: Tensor) -> QOutput:
        """Returns the online network's Q-values of `obs` [B, ...]."""
        return q_output(self.model, obs, training=True)

    def target(self, obs: Tensor) -> QOutput:
        """Returns the target network's Q-values of `obs` [B, ...]."""
        self._make_target()
        return q_output(self.target_network.model, obs, training=False)


class SimpleQTFPolicy(SimpleQPolicy, TargetNetworkMixin, TFPolicy):
    """A Q-network, a periodically copied target, and exploration on Q-values."""

    model_interface = DQNTFModel

    def __init__(self, obs_space: gym.Space[Any], action_space: gym.Space[Any], config: dict[str, Any]) -> None:
        self.check_action_space(action_space)
        TFPolicy.__init__(self, obs_space, action_space, config)
        TargetNetworkMixin.__init__(self)
        LearningRateSchedule.__init__(self, config["lr"], config["lr_schedule"])

    # --- parts ------------------------------------------------------------------------------------------------

    def optimizer(self) -> Adam:
        """Returns Adam with `lr` and `adam_epsilon`."""
        return self.adam(lr=self.config["lr"], eps=self.config["adam_epsilon"])

    def gradients(self, optimizer: Any, loss: Tensor) -> list[tuple[Any, Any]]:
        """Clips the gradient's global norm to `grad_clip`."""
        return self.clip_gradients(super().gradients(optimizer, loss), self.config["grad_clip"])


__all__ = ["SimpleQTFPolicy", "TargetNetworkMixin", "build_q_losses"]
