"""Functions that RLlib's CQL was made of in PyTorch, for losses and policies of programs that are made of them.

A policy that derives from `CQLTorchPolicy` has all of it as methods. `policy_actions_repeat` and `q_values_repeat` take
the networks of such a policy as well as a model that `build_sac_model` made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from rlframe.agents.families.users_losses import means_kept
from rlframe.agents.sac.cql_policy import CQLPolicy
from rlframe.policy.parts import kept
from rlframe.rllib1x import replayed_actor_critics, sac_torch

#: What RLlib's module had as limits of means, and did not use.
MEAN_MIN, MEAN_MAX = -9.0, 9.0


def _repeated(features: Tensor, times: int) -> Tensor:
    """Returns each row of features `[B, ...]` `times` times, one after the other, `[B · times, ...]`."""
    return features.repeat_interleave(times, 0)


def policy_actions_repeat(model: Any, action_dist: Any, obs: Tensor, num_repeat: int = 1) -> tuple[Tensor, Tensor]:
    """Returns several actions for each observation, and their log-probabilities.

    Args:
        model: Has `get_policy_output`.
        action_dist: Class of the actions' distribution.
        obs: What `get_policy_output` takes. Float `[B, D]`.
        num_repeat: N, how many actions each gets.

    Returns:
        Actions `[B · N, A]`, those of one observation after each other, and log-probabilities `[B, N, 1]`.
    """
    dist = action_dist(model.get_policy_output(_repeated(obs, num_repeat)), model)
    actions = dist.sample()
    return actions, dist.logp(actions).reshape(obs.shape[0], num_repeat, 1)


def q_values_repeat(model: Any, obs: Tensor, actions: Tensor, twin: bool = False) -> Tensor:
    """Returns a critic's values of several actions for each observation, `[B, N, 1]`.

    Args:
        model: Has `get_q_values` and `get_twin_q_values`.
        obs: What they take, float `[B, D]`.
        actions: Those of one observation after each other. Float `[B · N, A]`.
        twin: Whether it is the second critic.
    """
    count = actions.shape[0] // obs.shape[0]
    values: Tensor = (model.get_twin_q_values if twin else model.get_q_values)(_repeated(obs, count), actions)
    return values.reshape(obs.shape[0], count, 1)


def cql_loss(policy: Any, model: Any, dist_class: Any, train_batch: Any) -> Any:
    """Returns the losses of a policy that derives from `CQLTorchPolicy`: of actor, critics and α, and the multiplier's.

    The critics' are one, their sum; what it reports stands where `cql_stats` looks for it.
    """
    return kept(policy, CQLPolicy.loss(policy, model, dist_class, train_batch))


def cql_stats(policy: Any, train_batch: Any) -> dict[str, Any]:
    """Returns what the loss kept for the report: SAC's statistics, the penalty, and the multiplier's with one."""
    found = replayed_actor_critics.stats(policy, train_batch)
    return found | means_kept(policy, *_LEFT) if "cql_loss" not in found else found


#: What RLlib's loss leaves in the model's `tower_stats`, or in the policy, beside what SAC's leaves.
_LEFT = ("cql_loss", "log_alpha_prime_value", "alpha_prime_value", "alpha_prime_loss")


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
