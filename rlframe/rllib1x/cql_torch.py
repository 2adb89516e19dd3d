"""How RLlib's CQL made its optimisers in PyTorch, for policies that programs make by `build_policy_class`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from rlframe.rllib1x import replayed_actor_critics, sac_torch


def cql_optimizer_fn(policy: Any, config: Mapping[str, Any]) -> tuple[torch.optim.Optimizer, ...]:
    """Returns the optimisers of SAC, and that of the multiplier, which the model gets as `log_alpha_prime` `[1]`.

    Args:
        policy: Has a model that `build_sac_model` made; gets the attributes that `sac_torch.optimizer_fn` says,
            `cur_iter` 0, and with `lagrangian` `alpha_prime_optim`.
        config: Its `optimization`, `twin_q` and `lagrangian`.
    """
    policy.cur_iter = 0
    made = sac_torch.optimizer_fn(policy, config)
    if not config["lagrangian"]:
        return made
    policy.model.register_parameter("log_alpha_prime", nn.Parameter(torch.zeros(1, device=policy.device)))
    rate = config["optimization"]["critic_learning_rate"]
    policy.alpha_prime_optim = torch.optim.Adam([policy.model.log_alpha_prime], lr=rate, eps=sac_torch.ADAM_EPS)
    return (*made, policy.alpha_prime_optim)


def cql_setup_late_mixins(policy: Any, obs_space: Any, action_space: Any, config: Mapping[str, Any]) -> None:
    """Sets target networks equal to the networks, once these are there."""
    replayed_actor_critics.setup_late_mixins(policy, obs_space, action_space, config)
