"""IMPALA in TensorFlow: the loss on V-trace and the policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from rlframe.agents.impala.vtrace_policy import VTracePolicy
from rlframe.data.columns import ACTION_LOGP, ACTIONS, OBS, VALID_MASK
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.masking import valid_mean, valid_rows
from rlframe.losses.policy_gradients import (
    beyond_bounds,
    explained_variance,
    policy_gradient,
    sampled_kl,
    scaled_by_rms,
)
from rlframe.losses.vtrace import batch_vtrace
from rlframe.policy.tf.adam import Adam
from rlframe.policy.tf.optimizers import set_rate
from rlframe.policy.tf.rmsprop import RMSProp
from rlframe.policy.tf_policy import TFPolicy
from rlframe.utils.quiet_tf import tf

Stats = dict[str, Any]
Tensor: TypeAlias = Any


def vtrace_loss(policy: VTraceTFPolicy, model: Any, dist_class: Any, train_batch: SampleBatch) -> Any:
    """Returns the loss of one batch, a scalar; or those of policy and values, with `_separate_vf_optimizer`.

        mean[ −log π(a|s) A + c_v ½ ((V − v_s) / σ)² − c_e H(π) + c_k KL(μ‖π) + c_b B(π) ]

    μ is the policy that acted: where π left it, the fourth term pulls back, which V-trace alone does not. B is how far
    means of Gaussians lie beyond the action bounds, see `beyond_bounds`; 0 for other distributions. A is in units of
    its root mean square with `scale_advantages`. With `normalize_values` V is μ_v + σ times what the network gives,
    μ_v and σ the running mean and standard deviation of v_s; without, they are 0 and 1.
    RLlib summed over the rows; with a mean, the length of a step does not depend on the size of the batch.

    Source: Espeholt et al. 2018, "IMPALA", section 4.2.
    """
    dist_inputs, _ = model(train_batch)
    dist, values = dist_class(dist_inputs, model), policy.in_reward_units(model.value_function())
    logp = dist.logp(train_batch[ACTIONS])
    vtrace, counts = batch_vtrace(train_batch, logp, values, **policy.vtrace_options())
    mean, counted = valid_mean({VALID_MASK: counts}), valid_rows({VALID_MASK: counts})
    advantages = scaled_by_rms(vtrace.advantages, mean) if policy.scales_advantages else vtrace.advantages
    policy_loss = mean(policy_gradient(logp, advantages))
    vf_loss = 0.5 * mean(tf.square((values - vtrace.targets) / policy.value_std))
    entropy = mean(dist.entropy())
    behaviour_kl = mean(sampled_kl(logp, train_batch[ACTION_LOGP]))
    bound_loss = policy.bound_loss(dist, mean)
    policy_terms = policy_loss - policy.entropy_coeff * entropy + policy.held(behaviour_kl, bound_loss)
    value_terms = policy.config["vf_loss_coeff"] * vf_loss
    policy.keep(
        total_loss=policy_terms + value_terms,
        policy_loss=policy_loss,
        vf_loss=vf_loss,
        entropy=entropy,
        behaviour_kl=behaviour_kl,
        **policy.bound_stats(bound_loss),
        **policy.target_stats(vtrace.targets, mean),
        vf_explained_var=explained_variance(counted(vtrace.targets), counted(tf.stop_gradient(values))),
    )
    return policy.losses(policy_terms, value_terms)


class VTraceTFPolicy(VTracePolicy, TFPolicy):
    """An actor with a critic, trained on rows of policies that lag behind."""

    learn_scalars = (*TFPolicy.learn_scalars, "value_mean", "value_std", "rows_learned")

    beyond_bounds = staticmethod(beyond_bounds)

    def __init__(self, obs_space: Any, action_space: Any, config: dict[str, Any]) -> None:
        self._loss_outputs: Stats = {}
        self.setup_mixins(config)
        TFPolicy.__init__(self, obs_space, action_space, config)

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> Any:
        """Returns the loss of one batch; see `vtrace_loss`."""
        return vtrace_loss(self, model, dist_class, train_batch)

    def target_stats(self, targets: Tensor, mean: Callable[[Tensor], Tensor]) -> Stats:
        """Returns the mean of the value targets, and of ((v_s − μ) / σ)², where the units of values follow them."""
        if not self.normalizes:
            return {}
        return {
            "vf_target_mean": mean(targets),
            "vf_target_spread": mean(tf.square((targets - self.value_mean) / self.value_std)),
        }

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

    def extra_grad_info(self, train_batch: SampleBatch) -> Stats:
        """Returns losses, entropy and explained variance, means over the rows, and the norm of the weights."""
        norm = tf.linalg.global_norm(self.model.trainable_variables())
        return {"cur_lr": self.cur_lr, **self._loss_outputs, "entropy_coeff": self.entropy_coeff, "var_gnorm": norm}


__all__ = ["VTraceTFPolicy", "vtrace_loss"]
