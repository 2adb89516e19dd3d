"""Functions that RLlib's CQL was made of in both frameworks, for losses and policies of programs that are made of them.

A policy that derives from `CQLTorchPolicy` or `CQLTFPolicy` has all of it as methods. `policy_actions_repeat` and
`q_values_repeat` take the networks of such a policy as well as a model that `build_sac_model` made.
"""

from __future__ import annotations

from typing import Any

from rlframe.agents.families.users_losses import means_kept
from rlframe.agents.sac.cql_policy import CQLPolicy
from rlframe.policy.parts import kept
from rlframe.rllib1x import replayed_actor_critics
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor

#: What RLlib's module had as limits of means, and did not use.
MEAN_MIN, MEAN_MAX = -9.0, 9.0


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
    repeated = ops.reshape(ops.concat([obs[:, None]] * num_repeat, axis=1), (-1, obs.shape[1]))
    dist = action_dist(model.get_policy_output(repeated), model)
    actions = dist.sample()
    return actions, ops.reshape(dist.logp(actions), (-1, num_repeat, 1))


def q_values_repeat(model: Any, obs: Tensor, actions: Tensor, twin: bool = False) -> Tensor:
    """Returns a critic's values of several actions for each observation, `[B, N, 1]`.

    Args:
        model: Has `get_q_values` and `get_twin_q_values`.
        obs: What they take, float `[B, D]`.
        actions: Those of one observation after each other. Float `[B · N, A]`.
        twin: Whether it is the second critic.
    """
    rows, actions = ops.row_count(obs), ops.tensor_like(actions, obs)
    ones = ops.reshape(ops.ones_like(actions[:, :1]), (rows, -1, 1))  # TensorFlow may know the number only in the step
    features = ops.reshape(ones * obs[:, None], (-1, obs.shape[1]))
    values: Tensor = (model.get_twin_q_values if twin else model.get_q_values)(features, actions)
    return ops.reshape(values, (rows, -1, 1))


def cql_loss(policy: Any, model: Any, dist_class: Any, train_batch: Any) -> Any:
    """Returns the losses of a policy that derives from CQL's: of actor, critics and α, and the multiplier's.

    The critics' are one, their sum; what it reports stands where `cql_stats` looks for it.
    """
    return kept(policy, CQLPolicy.loss(policy, model, dist_class, train_batch))


def cql_stats(policy: Any, train_batch: Any) -> dict[str, Any]:
    """Returns what the loss kept for the report: SAC's statistics, the penalty, and the multiplier's with one."""
    found = replayed_actor_critics.stats(policy, train_batch)
    return found | means_kept(policy, *_LEFT) if "cql_loss" not in found else found


#: What RLlib's loss leaves in the model's `tower_stats`, or in the policy, beside what SAC's leaves.
_LEFT = ("cql_loss", "log_alpha_prime_value", "alpha_prime_value", "alpha_prime_loss")
