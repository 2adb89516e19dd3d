"""Functions that RLlib's SAC was made of in PyTorch, for policies that programs make of them by `build_policy_class`.

A policy that derives from `SACTorchPolicy` has all of it as methods; these are for a model that `build_sac_model` made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from rlframe.agents.sac.sac_model import sac_action_dist

ADAM_EPS = 1e-7


def optimizer_fn(policy: Any, config: Mapping[str, Any]) -> tuple[torch.optim.Optimizer, ...]:
    """Returns the optimisers of actor, critics and log α, in the order of the losses; the policy keeps them, too.

    Args:
        policy: Has a model with `policy_variables`, `q_variables` and `log_alpha`; gets `actor_optim`, `critic_optims`
            and `alpha_optim`.
        config: Its `optimization` and `twin_q`.
    """
    model, rates = policy.model, config["optimization"]

    def adam(weights: list[Any], rate: str) -> torch.optim.Optimizer:
        return torch.optim.Adam(weights, lr=rates[f"{rate}_learning_rate"], eps=ADAM_EPS)

    critics = model.q_variables()
    size = len(critics) // (2 if config["twin_q"] else 1)
    policy.actor_optim = adam(model.policy_variables(), "actor")
    policy.critic_optims = [adam(critics[at : at + size], "critic") for at in range(0, len(critics), size)]
    policy.alpha_optim = adam([model.log_alpha], "entropy")
    return (policy.actor_optim, *policy.critic_optims, policy.alpha_optim)


def _get_dist_class(*arguments: Any) -> Any:
    """Returns the class of the actions' distribution; of `(config, action_space)`, or with the policy before them."""
    config, action_space = arguments[-2:]
    return sac_action_dist(config["model"], action_space, "torch")
