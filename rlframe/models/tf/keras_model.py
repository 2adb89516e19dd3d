"""Plain Keras models as policies' models: RLlib 1.x took them beside `TFModelV2`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.data.columns import OBS, SEQ_LENS, VF_PREDS
from rlframe.models.modelv2 import IS_TRAINING
from rlframe.models.tf.tf_modelv2 import TFModelV2


class KerasModel(TFModelV2):
    """A Keras model of the user's, with the methods that policies call.

    The Keras class is constructed as `cls(obs_space, action_space, num_outputs, name=..., **custom_model_config)`. Its
    `call(input_dict)` gets the batch with flat observations (and `state_in_0`, ..., `seq_lens` if it has a memory), and
    returns outputs `[B, num_outputs]`, a list of new states, and a dict, in which `vf_preds` `[B]` are the values. It
    has a memory if its `view_requirements` have `state_in_0`, or its `get_initial_state()` is not empty. What else it
    has is found on this model, too.
    """

    #: The user's class; subclasses that `as_tf_modelv2` makes have one.
    keras_class: type

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int | None, model_config: dict[str, Any], name: str | None
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        options = model_config.get("custom_model_config") or {}
        self.keras_model: Any = self.keras_class(
            self.obs_space, self.action_space, num_outputs, name=self.name, **options
        )
        self._states: dict[str, Any] = {}
        for key, view in (getattr(self.keras_model, "view_requirements", None) or {}).items():
            (self._states if key.startswith("state_") else self.view_requirements)[key] = view
        self._extra: Mapping[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        """Returns what only the Keras model has; programs reach for its layers."""
        if name.startswith("__") or "keras_model" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.keras_model, name)

    def get_initial_state(self) -> list[Any]:
        """Returns the Keras model's own initial state, else zeros for its views `state_in_0`, `state_in_1`, ..."""
        own = getattr(self.keras_model, "get_initial_state", None)
        if own is not None:
            return list(own())
        spaces = [
            self._states[f"state_in_{i}"].space for i in range(len(self._states)) if f"state_in_{i}" in self._states
        ]
        return [np.zeros(space.shape, space.dtype) for space in spaces]

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Any, list[Any]]:
        """Calls the Keras model with the batch; its extra outputs are kept for `value_function`."""
        for i, part in enumerate(state):
            input_dict[f"state_in_{i}"] = part
        if state:
            input_dict[SEQ_LENS] = seq_lens
        # Not by `__call__`: that of Keras takes nothing but tensors, and a batch has methods that programs call.
        result = self.keras_model.call(input_dict)
        if not isinstance(result, tuple | list) or len(result) != 3 or not isinstance(result[2], Mapping):
            raise ValueError(
                f"{self.keras_class.__name__}.call() must return (outputs, list of states, dict of extra outputs); got "
                f"{type(result).__name__}{f' of length {len(result)}' if isinstance(result, tuple | list) else ''}."
            )
        outputs, new_state, self._extra = result
        return outputs, list(new_state)

    def value_function(self) -> Any:
        """Returns `vf_preds` of the last call's extra outputs. Float `[B]`."""
        if VF_PREDS not in self._extra:
            raise ValueError(
                f"{self.keras_class.__name__}.call() returned the extra outputs {sorted(self._extra)}, but its "
                f"algorithm asks for values: add {VF_PREDS!r}, one value per row, shape [B]."
            )
        return self._extra[VF_PREDS]

    def _restored(self, input_dict: Any) -> Any:
        """Returns a shallow copy of the inputs; observations stay flat."""
        if hasattr(input_dict, "set_training"):  # a SampleBatch
            restored: Any = input_dict.copy(shallow=True)
        else:
            restored = {IS_TRAINING: False, **input_dict}
        restored[OBS] = self._as_arrays(self._observed(restored))
        return restored

    def __getstate__(self) -> dict[str, Any]:
        """Returns the attributes to copy or pickle, without the results of the last call."""
        return {**super().__getstate__(), "_extra": {}}


def as_tf_modelv2(keras_class: type) -> type[KerasModel]:
    """Returns the class of a policy's models around a Keras class."""
    return type(keras_class.__name__, (KerasModel,), {"keras_class": keras_class, "__module__": keras_class.__module__})
