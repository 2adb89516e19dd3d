"""What RLlib's PPO and A3C were made of in TensorFlow, for policies that are made of functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from rlframe.data.columns import VF_PREDS
from rlframe.policy.value_network import ValueNetworkMixin
from rlframe.rllib1x.schedules import EntropyCoeffSchedule, LearningRateSchedule
from rlframe.utils.quiet_tf import tf

Tensor: TypeAlias = Any


def vf_preds_fetches(policy: Any) -> dict[str, Tensor]:
    """Returns V [B] of the observations that were acted on, to be stored as `vf_preds`."""
    return {VF_PREDS: policy.model.value_function()}


vf_preds_fetches.only_values = True  # type: ignore[attr-defined]  # a marker: actors in NumPy give them, too


def compute_and_clip_gradients(policy: Any, optimizer: Any, loss: Tensor) -> list[tuple[Any, Any]]:
    """Returns (gradient, variable) pairs whose global norm is at most `grad_clip`; None there does not clip."""
    made = optimizer.compute_gradients(loss, policy.model.trainable_variables())
    clipped: list[tuple[Any, Any]] = policy.clip_gradients(made, policy.config["grad_clip"])
    return clipped


def setup_mixins(policy: Any, obs_space: Any, action_space: Any, config: dict[str, Any]) -> None:
    """Starts the schedules of the entropy bonus and of the learning rate."""
    ValueNetworkMixin.__init__(policy, obs_space, action_space, config)
    EntropyCoeffSchedule.__init__(policy, config["entropy_coeff"], config["entropy_coeff_schedule"])
    LearningRateSchedule.__init__(policy, config["lr"], config["lr_schedule"])


def stats(policy: Any, train_batch: Any) -> dict[str, Any]:
    """Returns what the loss kept, the learning rate and the weight of the entropy bonus."""
    del train_batch
    return {"cur_lr": policy.cur_lr, "entropy_coeff": policy.entropy_coeff, **policy._loss_outputs}


def grad_stats(policy: Any, train_batch: Any, grads: Sequence[Tensor | None]) -> dict[str, Tensor]:
    """Returns the norm of the gradients."""
    del policy, train_batch
    return {"grad_gnorm": tf.linalg.global_norm([gradient for gradient in grads if gradient is not None])}


class A3CLoss:
    """The actor-critic loss of one batch, summed over its rows.

    Args:
        action_dist: Distributions of the batch.
        actions: Actions taken [B, ...].
        advantages: Float [B].
        v_target: Value targets. Float [B].
        vf: Values. Float [B].
        valid_mask: Rows that count, bool [B], or float [B] of ones and zeros.
        vf_loss_coeff: Weight of the value loss.
        entropy_coeff: Weight of the entropy bonus.
        use_critic: Whether there is a value loss.

    Attributes:
        pi_loss: −Σ log π(a|s) A.
        vf_loss: ½ Σ (V − R)², 0 without a critic.
        entropy: Σ H(π).
        total_loss: The weighted sum of them.

    Source: Mnih et al. 2016, section 4.
    """

    def __init__(
        self,
        action_dist: Any,
        actions: Tensor,
        advantages: Tensor,
        v_target: Tensor,
        vf: Tensor,
        valid_mask: Tensor,
        vf_loss_coeff: float = 0.5,
        entropy_coeff: float = 0.01,
        use_critic: bool = True,
    ) -> None:
        mask = tf.cast(valid_mask, tf.bool)

        def valid_sum(column: Tensor) -> Tensor:
            return tf.reduce_sum(tf.where(mask, column, tf.zeros_like(column)))

        self.pi_loss = -valid_sum(action_dist.logp(actions) * advantages)
        self.vf_loss = 0.5 * valid_sum(tf.square(vf - v_target)) if use_critic else tf.constant(0.0)
        self.entropy = valid_sum(action_dist.entropy())
        self.total_loss = self.pi_loss + vf_loss_coeff * self.vf_loss - entropy_coeff * self.entropy
