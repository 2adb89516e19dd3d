"""Policies with V-trace in TensorFlow: optimisers and the learner step; see `vtrace_policy`."""

from __future__ import annotations

from typing import Any, TypeAlias

from rlframe.agents.families.vtrace_policy import VTracePolicy
from rlframe.data.columns import OBS
from rlframe.policy.tf.adam import Adam
from rlframe.policy.tf.optimizers import set_rate
from rlframe.policy.tf.rmsprop import RMSProp
from rlframe.policy.tf_policy import TFPolicy
from rlframe.utils.quiet_tf import tf

Stats = dict[str, Any]
Tensor: TypeAlias = Any


class VTraceTFBase(VTracePolicy, TFPolicy):
    """What policies with V-trace have of TensorFlow."""

    learn_scalars = (*TFPolicy.learn_scalars, "value_mean", "value_std", "rows_learned")

    def __init__(self, obs_space: Any, action_space: Any, config: dict[str, Any]) -> None:
        divisor = config["rollout_fragment_length"]  # of the first run: losses cut rows into fragments
        super().__init__(obs_space, action_space, config, get_batch_divisibility_req=divisor)

    def optimizer(self) -> Any:
        """Returns the optimiser that `opt_type` names; two of them with `_separate_vf_optimizer`."""
        config = self.config
        if not config["_separate_vf_optimizer"]:
            return self.make_optimizer(self.model.trainable_variables(as_dict=True), config["lr"])
        acting, valuing = self.split_weights()
        return [self.make_optimizer(acting, config["lr"]), self.make_optimizer(valuing, config["_lr_vf"])]

    def make_optimizer(self, weights: dict[str, Any], lr: float) -> Any:
        """Returns an optimiser over some weights."""
        config = self.config
        if config["opt_type"] == "adam":
            return Adam(weights, lr)
        return RMSProp(
            weights, lr, decay=config["decay"], eps=self.for_means(config["epsilon"]), momentum=config["momentum"]
        )

    def split_weights(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the weights that actions depend on, and those that values depend on.

        Raises:
            ConfigError: If some are both.
        """
        named = self.model.trainable_variables(as_dict=True)
        obs = tf.zeros((2, *(self.observation_space.shape or ())))
        with tf.GradientTape(persistent=True) as tape:
            inputs = self.model({OBS: obs, "is_training": True}, [], None)[0]
            values = self.model.value_function()
        parts = []
        for output in (inputs, values):
            found = tape.gradient(output, list(named.values()))
            parts.append({name for name, gradient in zip(named, found, strict=True) if gradient is not None})
        self.refuse_shared(sorted(parts[0] & parts[1]))
        acting = {name: variable for name, variable in named.items() if name not in parts[1]}
        return acting, {name: variable for name, variable in named.items() if name in parts[1]}

    def set_learning_rate(self, lr: float) -> None:
        """Sets the rate of the policy's optimiser; that of separate values is constant."""
        for optimizer in self._optimizers[:1]:  # policies that only evaluate have none
            set_rate(optimizer, lr)

    def gradients(self, optimizer: Any, loss: Tensor) -> list[tuple[Any, Any]]:
        """Clips the gradient's global norm to `grad_clip`."""
        return self.clip_gradients(super().gradients(optimizer, loss), self.for_means(self.config["grad_clip"]))

    def apply_optimizer(self, optimizer: Any, grads_and_vars: list[tuple[Any, Any]]) -> None:
        """Lets one optimiser do its step; fits RMSProp's ε to the rows."""
        if isinstance(optimizer, RMSProp):
            optimizer.apply_gradients(grads_and_vars, self.for_means(self.config["epsilon"]))
        else:
            super().apply_optimizer(optimizer, grads_and_vars)

    def weights_norm(self) -> Tensor:
        """Returns the global L2 norm of the weights, a scalar."""
        return tf.linalg.global_norm(self.model.trainable_variables())


__all__ = ["VTraceTFBase"]
