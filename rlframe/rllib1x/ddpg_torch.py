"""Functions that RLlib's DDPG was made of in PyTorch, for policies that programs make of them by `build_policy_class`.

A policy that derives from `DDPGTorchPolicy` has all of it as methods; these are for a model of the program's own that
has `policy_variables` and `q_variables`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from rlframe.rllib1x.sac_torch import ADAM_EPS


def before_init_fn(policy: Any, obs_space: Any, action_space: Any, config: Mapping[str, Any]) -> None:
    """Begins the count of updates, `policy.global_step`."""
    del obs_space, action_space, config
    policy.global_step = 0


def make_ddpg_optimizers(policy: Any, config: Mapping[str, Any]) -> tuple[torch.optim.Optimizer, ...]:
    """Returns the optimisers of actor and critics, in the order of the losses; the policy keeps them, too.

    Args:
        policy: Gets `_actor_optimizer` and `_critic_optimizer`.
        config: Its `actor_lr` and `critic_lr`.
    """
    model = policy.model
    policy._actor_optimizer = torch.optim.Adam(model.policy_variables(), lr=config["actor_lr"], eps=ADAM_EPS)
    policy._critic_optimizer = torch.optim.Adam(model.q_variables(), lr=config["critic_lr"], eps=ADAM_EPS)
    return policy._actor_optimizer, policy._critic_optimizer


def apply_gradients_fn(policy: Any, gradients: Any) -> None:
    """Steps the critics, and the actor with every `policy_delay`-th update.

    Args:
        policy: Of which `before_init_fn` and `make_ddpg_optimizers` made the attributes; its weights have gradients.
        gradients: Those; not read.
    """
    del gradients
    if policy.global_step % policy.config["policy_delay"] == 0:
        policy._actor_optimizer.step()
    policy._critic_optimizer.step()
    policy.global_step += 1
