"""Which weights of a model its outputs depend on, and which its values alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlframe.data.columns import OBS
from rlframe.models.probe import ROWS, probe_inputs
from rlframe.policy.parts import MODEL_OUTPUTS, MODEL_VALUES
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor
from rlframe.utils.errors import ConfigError


def split_model(policy: Any) -> dict[tuple[str, ...], dict[str, Any]]:
    """Returns the weights that a policy's model has for outputs, and for values, by name.

    Which they are, gradients tell, of two rows.

    Weights that serve both are the outputs' where the policy steps these itself.

    Raises:
        ConfigError: If some serve both, and each part has an optimiser.
    """
    model, weights = policy.model, policy.model.trainable_variables(as_dict=True)
    inputs = policy.to_tensors(probe_inputs(model, policy.observation_space))
    states = [policy.to_tensors(np.stack([np.asarray(state)] * ROWS)) for state in policy.get_initial_state()]
    seq_lens = policy.to_tensors(np.ones(ROWS, np.int32)) if states else None

    def outputs(_: Any = None) -> Tensor:
        return ops.sum(model({**inputs, "is_training": True}, states, seq_lens)[0])

    def values() -> Tensor:
        outputs()
        return ops.sum(model.value_function())

    acting, valuing = _reached(outputs, weights), _reached(values, weights)
    # The model forgets the graph of the passes above, so that it can be copied.
    ops.without_gradient(outputs, inputs[OBS])
    shared = sorted(acting & valuing)
    if shared and not policy.own_steps:
        raise ConfigError(
            f"_separate_vf_optimizer: got a model whose weights {shared[:3]} serve policy and values, wanted two "
            "separate networks; set model.vf_share_layers to False, or leave the key out"
        )
    for_values = valuing - acting if policy.own_steps else valuing
    return {
        MODEL_OUTPUTS: {name: weight for name, weight in weights.items() if name not in for_values},
        MODEL_VALUES: {name: weight for name, weight in weights.items() if name in for_values},
    }


def _reached(function: Callable[[], Tensor], weights: dict[str, Any]) -> set[str]:
    """Returns the names of the weights that a scalar depends on."""
    found = ops.gradients(function, list(weights.values()))
    return {name for name, gradient in zip(weights, found, strict=True) if gradient is not None}
