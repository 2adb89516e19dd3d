"""SimpleQ in TensorFlow: the loss and the policy of the original deep Q-network."""

from __future__ import annotations

from typing import Any, TypeAlias

import gymnasium as gym

from rlframe.agents.dqn.dqn_tf_model import DQNTFModel, QOutput, q_output
from rlframe.agents.dqn.q_policy import QTargetPolicy, SimpleQPolicy
from rlframe.data.columns import ACTIONS, DISCOUNTS, NEXT_OBS, OBS, REWARDS
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.q_learning import huber, select_by_action
from rlframe.policy.tf.adam import Adam
from rlframe.policy.tf.target import TargetNetwork
from rlframe.policy.tf_policy import LearningRateSchedule, TFPolicy
from rlframe.utils.quiet_tf import tf

Stats = dict[str, Any]
Tensor: TypeAlias = Any


def build_q_losses(policy: SimpleQTFPolicy, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor:
    """Returns the mean Huber loss of the one-step temporal-difference error, a scalar.

        δ = Q(s, a) − [ r + γ (1 − terminated) · max_a' Q⁻(s', a') ]

    Source: Mnih et al. 2015, "Human-level control through deep reinforcement learning", algorithm 1.
    """
    del dist_class
    q_t = policy.online(train_batch[OBS]).q
    q_tp1 = policy.target(train_batch[NEXT_OBS]).q
    target = tf.stop_gradient(train_batch[REWARDS] + train_batch[DISCOUNTS] * tf.reduce_max(q_tp1, axis=1))
    td_error = select_by_action(q_t, train_batch[ACTIONS]) - target
    model.tower_stats["td_error"] = td_error
    policy.keep(td_error=td_error, mean_q=tf.reduce_mean(q_t), min_q=tf.reduce_min(q_t), max_q=tf.reduce_max(q_t))
    return tf.reduce_mean(huber(td_error))


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

    # --- acting -----------------------------------------------------------------------------------------------

    def dist_inputs(self, obs: Tensor) -> Tensor:
        """Returns Q-values [B, A] for a tensor of preprocessed observations [B, ...]."""
        return self.model.q_values(self.model({OBS: obs, "is_training": False}, [], None)[0]).q

    def _dist_inputs(self, batch: SampleBatch, explore: bool, step: int) -> tuple[Tensor, Any, list[Tensor]]:
        del step, explore
        return self.model.q_values(self.model(batch, [], None)[0]).q, self.dist_class, []

    # --- learning ---------------------------------------------------------------------------------------------

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor:
        """Returns the loss of one batch; see `build_q_losses`."""
        return build_q_losses(self, model, dist_class, train_batch)

    def gradients(self, optimizer: Any, loss: Tensor) -> list[tuple[Any, Any]]:
        """Clips the gradient's global norm to `grad_clip`."""
        return self.clip_gradients(super().gradients(optimizer, loss), self.config["grad_clip"])

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
        td_error = self._loss_outputs["td_error"]
        return {"td_error": td_error, "mean_td_error": tf.reduce_mean(td_error)}


__all__ = ["SimpleQTFPolicy", "TargetNetworkMixin", "build_q_losses"]
