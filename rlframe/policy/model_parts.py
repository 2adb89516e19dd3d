"""Which weights of a model its outputs depend on, and which its values alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlframe.data.columns import OBS
from rlframe.policy.parts import MODEL_OUTPUTS, MODEL_VALUES
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor
from rlframe.utils.errors import ConfigError


def split_model(policy: Any) -> dict[tuple[str, ...], dict[str, Any]]:
    """Returns the weights that a policy's model has for outputs, and for values, by name; so of two rows of zeros.

    Raises:
        ConfigError: If some serve both.
    """
    model, weights = policy.model, policy.model.trainable_variables(as_dict=True)
    obs = policy.to_tensors(np.zeros((2, *(policy.observation_space.shape or ())), np.float32))

    def outputs(_: Any = None) -> Tensor:
        return ops.sum(model({OBS: obs, "is_training": True}, [], None)[0])

    def values() -> Tensor:
        outputs()
        return ops.sum(model.value_function())

    acting, valuing = _reached(outputs, weights), _reached(values, weights)
    ops.without_gradient(outputs, obs)  # the model forgets the graph of the passes above, so that it can be copied
    shared = sorted(acting & valuing)
    if shared:
        raise ConfigError(
            f"_separate_vf_optimizer: got a model whose weights {shared[:3]} serve policy and values, wanted two "
            "separate networks; set model.vf_share_layers to False, or leave the key out"
        )
    return {
        MODEL_OUTPUTS: {name: weight for name, weight in weights.items() if name not in valuing},
        MODEL_VALUES: {name: weight for name, weight in weights.items() if name in valuing},
    }


def _reached(function: Callable[[], Tensor], weights: dict[str, Any]) -> set[str]:
    """Returns the names of the weights that a scalar depends on."""
    found = ops.gradients(function, list(weights.values()))
    return {name for name, gradient in zip(weights, found, strict=True) if gradient is not None}
