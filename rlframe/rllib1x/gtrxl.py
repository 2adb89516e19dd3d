"""RLlib's `GTrXLNet`: the Gated Transformer-XL as a custom model, straight behind the observations."""

from __future__ import annotations

import math
from typing import Any

from rlframe.models.memory_models import AttentionBehind
from rlframe.models.modelv2 import OBS_FLAT
from rlframe.tensor import ops


class _Observations:
    """The model before the attention: flat observations as they are."""

    def __init__(self, obs_space: Any) -> None:
        self.num_outputs = math.prod(obs_space.shape)
        self.view_requirements: dict[str, Any] = {}

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Any, list[Any]]:
        """Returns the observations, float `[B, D]`."""
        del seq_lens
        return ops.flat_rows(input_dict[OBS_FLAT]), state


class GTrXL(AttentionBehind):
    """A Gated Transformer-XL on flat observations; `config["model"]["custom_model"]` names it.

    What `use_attention` puts behind a default network, without that network. The state of a unit is its inputs of the
    last `memory_inference` steps.

    Args:
        observation_space: Preprocessed observation space.
        action_space: Action space of the environment.
        num_outputs: Width of the outputs; None makes the last unit's the outputs.
        model_config: The `model` section of the config.
        name: Name of the model.
        num_transformer_units: Number of units.
        attention_dim: Width of the units.
        num_heads: Heads of each unit.
        memory_inference: Steps back that are seen.
        memory_training: Steps before a training sequence that are seen.
        head_dim: Width of a head.
        position_wise_mlp_dim: Hidden layer behind the attention.
        init_gru_gate_bias: Biases of the gates at the beginning.

    Source: Parisotto et al. 2020, "Stabilizing Transformers for Reinforcement Learning".
    """

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        num_outputs: int | None,
        model_config: dict[str, Any],
        name: str | None,
        *,
        num_transformer_units: int = 1,
        attention_dim: int = 64,
        num_heads: int = 2,
        memory_inference: int = 50,
        memory_training: int = 50,
        head_dim: int = 32,
        position_wise_mlp_dim: int = 32,
        init_gru_gate_bias: float = 2.0,
    ) -> None:
        config = {
            **model_config,
            "attention_num_transformer_units": num_transformer_units,
            "attention_dim": attention_dim,
            "attention_num_heads": num_heads,
            "attention_memory_inference": memory_inference,
            "attention_memory_training": memory_training,
            "attention_head_dim": head_dim,
            "attention_position_wise_mlp_dim": position_wise_mlp_dim,
            "attention_init_gru_gate_bias": init_gru_gate_bias,
            "attention_use_n_prev_actions": 0,
            "attention_use_n_prev_rewards": 0,
        }
        inner = _Observations(observation_space)
        super().__init__(observation_space, action_space, num_outputs, config, name, inner=inner)
        if num_outputs is None:
            self.num_outputs = attention_dim
