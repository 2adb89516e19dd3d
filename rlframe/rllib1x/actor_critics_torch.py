"""What RLlib's PPO and A3C were made of in PyTorch, for policies that are made of functions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlframe.data.columns import VF_PREDS
from rlframe.policy.value_network import ValueNetworkMixin
from rlframe.rllib1x.schedules import EntropyCoeffSchedule, LearningRateSchedule


def vf_preds_fetches(
    policy: Any, input_dict: Any, state_batches: Any, model: Any, action_dist: Any
) -> dict[str, Tensor]:
    """Returns V [B] of the observations that were acted on, to be stored as `vf_preds`."""
    del policy, input_dict, state_batches, action_dist
    return {VF_PREDS: model.value_function()}


vf_preds_fetches.only_values = True  # type: ignore[attr-defined]  # a marker: actors in NumPy give them, too


def torch_optimizer(policy: Any, config: dict[str, Any]) -> torch.optim.Optimizer:
    """Returns Adam with `lr` over the model's parameters."""
    optimizer: torch.optim.Optimizer = policy.adam(policy.model.parameters(), lr=config["lr"])
    return optimizer


def setup_mixins(policy: Any, obs_space: Any, action_space: Any, config: dict[str, Any]) -> None:
    """Starts the schedules of the entropy bonus and of the learning rate."""
    ValueNetworkMixin.__init__(policy, obs_space, action_space, config)
    EntropyCoeffSchedule.__init__(policy, config["entropy_coeff"], config["entropy_coeff_schedule"])
    LearningRateSchedule.__init__(policy, config["lr"], config["lr_schedule"])


def stats(policy: Any, train_batch: Any) -> dict[str, Any]:
    """Returns what the loss kept, the learning rate and the weight of the entropy bonus."""
    del train_batch
    return {"cur_lr": policy.cur_lr, "entropy_coeff": policy.entropy_coeff, **policy._loss_outputs}
