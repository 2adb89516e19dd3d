"""V-trace of logits in TensorFlow: what `rlframe.rllib1x.vtrace` has, with the framework's defaults, and optimisers."""

from __future__ import annotations

from typing import Any

from rlframe.losses.vtrace import from_importance_weights
from rlframe.models.tf.tf_action_dist import Categorical
from rlframe.policy.tf.rmsprop import RMSProp
from rlframe.rllib1x.vtrace import (
    VTraceFromLogitsReturns,
    VTraceLoss,
    build_vtrace_loss,
    get_log_rhos,
    make_time_major,
    multi_from_logits,
    multi_log_probs_from_logits_and_actions,
    setup_mixins,
    takes_arrays,
)
from rlframe.tensor.ops import Tensor
from rlframe.utils.quiet_tf import tf


def log_probs_from_logits_and_actions(
    policy_logits: Tensor, actions: Tensor, dist_class: Any = Categorical, model: Any = None
) -> Tensor:
    """Returns log π(a|s) `[T, B]` of actions `[T, B, ...]` under distributions of inputs `[T, B, K]`."""
    return multi_log_probs_from_logits_and_actions([policy_logits], [actions], dist_class, model)[0]


def from_logits(
    behaviour_policy_logits: Tensor,
    target_policy_logits: Tensor,
    actions: Tensor,
    discounts: Tensor,
    rewards: Tensor,
    values: Tensor,
    bootstrap_value: Tensor,
    dist_class: Any = Categorical,
    model: Any = None,
    clip_rho_threshold: float | None = 1.0,
    clip_pg_rho_threshold: float | None = 1.0,
    name: str = "vtrace_from_logits",
) -> VTraceFromLogitsReturns:
    """Returns V-trace of actions of one part; see `multi_from_logits`."""
    del name  # of a scope in a graph
    made = multi_from_logits(
        [behaviour_policy_logits], [target_policy_logits], [actions], discounts, rewards, values, bootstrap_value,
        dist_class, model, None, clip_rho_threshold, clip_pg_rho_threshold,
    )  # fmt: skip
    return made._replace(
        behaviour_action_log_probs=made.behaviour_action_log_probs[0],
        target_action_log_probs=made.target_action_log_probs[0],
    )


from_importance_weights = takes_arrays(from_importance_weights, tf.convert_to_tensor)
from_logits = takes_arrays(from_logits, tf.convert_to_tensor)
log_probs_from_logits_and_actions = takes_arrays(log_probs_from_logits_and_actions, tf.convert_to_tensor)
multi_from_logits = takes_arrays(multi_from_logits, tf.convert_to_tensor)
multi_log_probs_from_logits_and_actions = takes_arrays(multi_log_probs_from_logits_and_actions, tf.convert_to_tensor)


def choose_optimizer(policy: Any, config: dict[str, Any]) -> Any:
    """Returns the optimiser that `opt_type` names, over the model's variables."""
    lr = getattr(policy, "cur_lr", config["lr"])
    if config["opt_type"] == "adam":
        return policy.adam(lr=lr)
    weights = policy.model.trainable_variables(as_dict=True)
    return RMSProp(weights, lr, decay=config["decay"], eps=config["epsilon"], momentum=config["momentum"])


def stats(policy: Any, train_batch: Any) -> dict[str, Any]:
    """Returns what the loss kept, the learning rate, and the norm of the weights."""
    del train_batch
    norm = tf.linalg.global_norm(policy.model.trainable_variables())
    return {"cur_lr": policy.cur_lr, "entropy_coeff": policy.entropy_coeff, "var_gnorm": norm, **policy._loss_outputs}


__all__ = [
    "VTraceFromLogitsReturns",
    "VTraceLoss",
    "build_vtrace_loss",
    "choose_optimizer",
    "from_importance_weights",
    "from_logits",
    "get_log_rhos",
    "log_probs_from_logits_and_actions",
    "make_time_major",
    "multi_from_logits",
    "multi_log_probs_from_logits_and_actions",
    "setup_mixins",
    "stats",
]
