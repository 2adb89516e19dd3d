"""What RLlib's DQN and SimpleQ had of their own in PyTorch, for policies that are made of functions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def extra_action_out_fn(
    policy: Any, input_dict: Any, state_batches: Any, model: Any, action_dist: Any
) -> dict[str, Tensor]:
    """Returns the Q-values [B, A] that were acted on."""
    del input_dict, state_batches, model, action_dist
    return {"q_values": policy.q_values}


def adam_optimizer(policy: Any, config: dict[str, Any]) -> torch.optim.Optimizer:
    """Returns Adam with `lr` and `adam_epsilon` over the Q-network's parameters."""
    optimizer: torch.optim.Optimizer = policy.adam(
        policy.model.parameters(), lr=getattr(policy, "cur_lr", config["lr"]), eps=config["adam_epsilon"]
    )
    return optimizer
