"""What RLlib's DQN and SimpleQ were made of in PyTorch, for policies that are made of functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlframe.agents.dqn.dqn_torch_model import DQNTorchModel
from rlframe.agents.dqn.q_policy import Q_SCOPE, Q_TARGET_SCOPE, check_discrete, make_q_model, q_heads, q_output
from rlframe.models.torch.torch_action_dist import TorchCategorical
from rlframe.rllib1x.q_learning import TargetNetworkMixin


def build_q_model_and_distribution(
    policy: Any, obs_space: Any, action_space: Any, config: dict[str, Any]
) -> tuple[Any, Any]:
    """Returns DQN's Q-network and the distribution whose inputs are Q-values; sets `policy.target_model`.

    Raises:
        UnsupportedSpaceException: If actions are not Discrete.
    """
    return _build(policy, obs_space, action_space, q_heads(config)), TorchCategorical


def build_q_models(policy: Any, obs_space: Any, action_space: Any, config: dict[str, Any]) -> Any:
    """Returns SimpleQ's Q-network, whose outputs are the Q-values; sets `policy.target_model`.

    Raises:
        UnsupportedSpaceException: If actions are not Discrete.
    """
    del config
    return _build(policy, obs_space, action_space, {"q_hiddens": (), "dueling": False})


def build_simple_q_model_and_distribution(
    policy: Any, obs_space: Any, action_space: Any, config: dict[str, Any]
) -> tuple[Any, Any]:
    """Returns SimpleQ's Q-network and the distribution whose inputs are Q-values; sets `policy.target_model`."""
    return build_q_models(policy, obs_space, action_space, config), TorchCategorical


def _build(policy: Any, obs_space: Any, action_space: Any, heads: Mapping[str, Any]) -> Any:
    check_discrete(type(policy).__name__, action_space)
    policy.observation_space, policy.action_space = obs_space, action_space
    model = make_q_model(policy, DQNTorchModel, heads, Q_SCOPE)[0]
    policy.target_model = make_q_model(policy, DQNTorchModel, heads, Q_TARGET_SCOPE)[0]
    return model


def setup_late_mixins(policy: Any, obs_space: Any, action_space: Any, config: dict[str, Any]) -> None:
    """Makes the target network of a policy with a `TargetNetworkMixin`, once the model is there."""
    TargetNetworkMixin.__init__(policy, obs_space, action_space, config)


def compute_q_values(
    policy: Any,
    model: Any,
    input_dict: Any,
    state_batches: Any = None,
    seq_lens: Any = None,
    explore: Any = None,
    is_training: bool = False,
) -> tuple[Tensor, Tensor, Tensor, list[Any]]:
    """Returns Q-values [B, A], logits and probabilities of the value's atoms [B, A, Z], and new states.

    With one atom both are ones. `explore` changes nothing: noisy layers are noisy while training.
    """
    del policy, explore
    inputs = input_dict if hasattr(input_dict, "set_training") else {"is_training": is_training, **input_dict}
    features, state = model(inputs, state_batches or [], seq_lens)
    made = model.q_values(features)
    if made.logits is None:
        ones = torch.ones_like(made.q).unsqueeze(-1)
        return made.q, ones, ones, state
    return made.q, made.logits, made.logits.softmax(-1), state


def compute_simple_q_values(policy: Any, model: Any, obs: Any, explore: Any, is_training: Any = None) -> Tensor:
    """Returns a model's Q-values [B, A] of observations [B, ...]."""
    del policy, explore
    q: Tensor = q_output(model, obs, training=bool(is_training)).q
    return q


def get_distribution_inputs_and_class(
    policy: Any, model: Any, input_dict: Any, *, explore: bool = True, is_training: bool = False, **kwargs: Any
) -> tuple[Tensor, Any, list[Any]]:
    """Returns Q-values [B, A], their distribution class, and new states; keeps them as `policy.q_values`."""
    del kwargs
    policy.q_values = compute_q_values(policy, model, input_dict, explore=explore, is_training=is_training)[0]
    model.tower_stats["q_values"] = policy.q_values
    return policy.q_values, TorchCategorical, []


def get_simple_distribution_inputs_and_class(
    policy: Any, q_model: Any, obs_batch: Any, *, explore: bool = True, is_training: bool = True, **kwargs: Any
) -> tuple[Tensor, Any, list[Any]]:
    """Returns Q-values [B, A], their distribution class, and new states; keeps them as `policy.q_values`."""
    del kwargs
    policy.q_values = compute_simple_q_values(policy, q_model, obs_batch, explore, is_training)
    return policy.q_values, TorchCategorical, []


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
