"""Action masks, once for both frameworks: models for environments whose observations say which actions are allowed."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import tree

from rlframe.data.columns import OBS
from rlframe.models.layer_owner import LayerOwner
from rlframe.models.modelv2 import ModelV2
from rlframe.models.preprocessors import get_preprocessor
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor
from rlframe.utils.errors import ConfigError

#: Where the mask is 0: low enough that no softmax gives the action any probability, and finite.
LOGIT_OF_FORBIDDEN = float(np.finfo(np.float32).min)
_OBSERVATION_KEYS = ("observations", "obs", "observation")
ACTION_MASK = "action_mask"


class ActionMask(LayerOwner, ModelV2):
    """A `FullyConnectedNetwork` on one part of a Dict observation; another part, `action_mask`, forbids actions.

    The observation space is Dict(action_mask=Box(0, 1, [A]), observations=...), `obs` or `observation` serving as well.
    Use it as `config["model"]["custom_model"] = ActionMaskModel`; its keys are those of the fully connected network.

    Args:
        obs_space: Flat space with the Dict as `original_space`.
        action_space: Action space of the environment; the mask has one entry per logit.
        num_outputs: Number of logits A.
        model_config: The `model` section of the config.
        name: Name of the model.
        **options: Entries of `custom_model_config`: `no_masking=True` switches the mask off, for comparison.

    Raises:
        ConfigError: If the observation space has not these parts, or the mask has another size.
    """

    #: The framework's `FullyConnectedNetwork`.
    network_class: ClassVar[Any]

    def __init__(
        self,
        obs_space: Any,
        action_space: Any,
        num_outputs: int,
        model_config: dict[str, Any],
        name: str | None,
        **options: Any,
    ) -> None:
        self.init_model_base(obs_space, action_space, num_outputs, model_config, name, **options)
        parts = getattr(getattr(obs_space, "original_space", obs_space), "spaces", None)
        self._key = next((key for key in _OBSERVATION_KEYS if isinstance(parts, dict) and key in parts), None)
        if not isinstance(parts, dict) or self._key is None or ACTION_MASK not in parts:
            raise ConfigError(
                f"ActionMaskModel wants observations Dict(action_mask=Box(0, 1, [actions]), observations=...); got "
                f"{getattr(obs_space, 'original_space', obs_space)}."
            )
        mask_size = get_preprocessor(parts[ACTION_MASK])(parts[ACTION_MASK]).size
        if mask_size != num_outputs:
            raise ConfigError(
                f"The action mask has {mask_size} entries, but the action space has {num_outputs} logits."
            )
        self._masking = not options.get("no_masking", False)
        inner_space = get_preprocessor(parts[self._key])(parts[self._key]).observation_space
        self.network = self.network_class(inner_space, action_space, num_outputs, model_config, f"{self.name}_network")

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns logits, float `[B, A]`: the lowest float where `obs["action_mask"]` is 0; and the state unchanged."""
        obs = input_dict[OBS]
        # Nested parts were restored by the call; the network takes them flat, in the same sorted order.
        flat = ops.concat([ops.flat_rows(leaf) for leaf in tree.flatten(obs[self._key])], 1)
        logits, _ = self.network({OBS: flat}, state, seq_lens)
        if not self._masking:
            return logits, state
        return ops.where(ops.flat_rows(obs[ACTION_MASK]) > 0.5, logits, LOGIT_OF_FORBIDDEN), state

    def value_function(self) -> Tensor:
        """Returns the value of every row of the last forward pass. Float `[B]`."""
        self._catch_up()
        return self.network.value_function()
