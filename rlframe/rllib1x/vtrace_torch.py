"""V-trace of logits in PyTorch: what `rlframe.rllib1x.vtrace` has, with the framework's defaults, and optimisers."""

from __future__ import annotations

from typing import Any

import torch

from rlframe.losses.vtrace import from_importance_weights
from rlframe.models.torch.torch_action_dist import TorchCategorical
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


def log_probs_from_logits_and_actions(
    policy_logits: Tensor, actions: Tensor, dist_class: Any = TorchCategorical, model: Any = None
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
    dist_class: Any = TorchCategorical,
    model: Any = None,
    clip_rho_threshold: float | None = 1.0,
    clip_pg_rho_threshold: float | None = 1.0,
) -> VTraceFromLogitsReturns:
    """Returns V-trace of actions of one part; see `multi_from_logits`."""
    made = multi_from_logits(
        [behaviour_policy_logits], [target_policy_logits], [actions], discounts, rewards, values, bootstrap_value,
        dist_class, model, None, clip_rho_threshold, clip_pg_rho_threshold,
    )  # fmt: skip
    return made._replace(
        behaviour_action_log_probs=made.behaviour_action_log_probs[0],
        target_action_log_probs=made.target_action_log_probs[0],
    )


from_importance_weights = takes_arrays(from_importance_weights, torch.as_tensor)
from_logits = takes_arrays(from_logits, torch.as_tensor)
log_probs_from_logits_and_actions = takes_arrays(log_probs_from_logits_and_actions, torch.as_tensor)
multi_from_logits = takes_arrays(multi_from_logits, torch.as_tensor)
multi_log_probs_from_logits_and_actions = takes_arrays(multi_log_probs_from_logits_and_actions, torch.as_tensor)


def choose_optimizer(policy: Any, config: dict[str, Any]) -> torch.optim.Optimizer:
    """Returns the optimiser that `opt_type` names, over the model's parameters."""
    lr, parameters = getattr(policy, "cur_lr", config["lr"]), list(policy.model.parameters())
    if config["opt_type"] == "adam":
        adam: torch.optim.Optimizer = policy.adam(parameters, lr=lr)
        return adam
    options = {"alpha": config["decay"], "eps": config["epsilon"], "momentum": config["momentum"]}
    return torch.optim.RMSprop(parameters, lr=lr, **options)


def stats(policy: Any, train_batch: Any) -> dict[str, Any]:
    """Returns what the loss kept, the learning rate, and the norm of the weights."""
    del train_batch
    norms = [torch.linalg.vector_norm(weight.detach()) for weight in policy.model.parameters()]
    norm = torch.linalg.vector_norm(torch.stack(norms))
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
