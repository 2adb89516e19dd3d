"""The base of TensorFlow models."""

from __future__ import annotations

from typing import Any

import numpy as np
import tree

from rlframe.models.custom import refuse_unknown_options
from rlframe.models.modelv2 import ModelV2
from rlframe.models.tf import keras_two
from rlframe.models.tf.named_variables import ForwardPass
from rlframe.models.tf.variables import VariableOwner
from rlframe.utils.missing_tf import MissingTensorFlow
from rlframe.utils.quiet_tf import tf


class TFModelV2(VariableOwner, ModelV2):
    """A model that computes with TensorFlow, eagerly or inside `tf.function`.

    Variables come from `add_weight` (named and laid out as the torch sibling's, so weights can be exchanged), or from
    Keras layers and models kept as attributes; see `VariableOwner`.

    Args:
        obs_space: Preprocessed observation space.
        action_space: Action space of the environment.
        num_outputs: Width of the outputs the policy wants, or None.
        model_config: The `model` section of the config.
        name: Name of the model.
        **options: Entries of `model_config["custom_model_config"]` that a subclass passed on without using them. They
            are accepted, so that `super().__init__(*args, **kwargs)` works, and have no further effect.

    Raises:
        TypeError: If a keyword is no entry of `custom_model_config`.
    """

    # What the constructors of the bases set: settings and results, among which there may be other models.
    _NOT_SEARCHED = (
        *VariableOwner._NOT_SEARCHED,
        *("model_config", "obs_space", "action_space", "view_requirements", "tower_stats", "_obs_layout"),
    )

    def __init__(
        self,
        obs_space: Any,
        action_space: Any,
        num_outputs: int | None,
        model_config: dict[str, Any],
        name: str | None,
        **options: Any,
    ) -> None:
        if isinstance(tf, MissingTensorFlow):
            tf.refuse(type(self).__name__)
        refuse_unknown_options(type(self), options, model_config)
        super().__init__(obs_space, action_space, num_outputs, model_config, name, framework="tf")
        #: Scratch space of losses and statistics functions.
        self.tower_stats: dict[str, Any] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # A program's may be written for Keras 2.
        if not cls.__module__.startswith("rlframe.") and not isinstance(tf, MissingTensorFlow):
            keras_two.accept()

    def context(self) -> Any:
        """Returns the context in which `forward` runs: variables that it makes by name are the model's."""
        return ForwardPass(self)

    def variables(self, as_dict: bool = False) -> list[Any] | dict[str, Any]:
        """Returns all variables, as a list or by name."""
        named = self.named_variables()
        return named if as_dict else list(named.values())

    def trainable_variables(self, as_dict: bool = False) -> list[Any] | dict[str, Any]:
        """Returns the variables that gradients change, as a list or by name."""
        named = self.named_trainable_variables()
        return named if as_dict else list(named.values())

    def update_ops(self) -> list[Any]:
        """Returns the operations to run beside training: none, layers update themselves when they are called."""
        return []

    # AutoGraph is for users' code; of ours it only complains.
    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]  # TensorFlow has no types
    def _restored(self, input_dict: Any) -> Any:
        return super()._restored(input_dict)

    def _as_arrays(self, obs: Any) -> Any:
        if isinstance(obs, tf.Tensor):
            return obs
        return tree.map_structure(lambda leaf: tf.constant(leaf) if isinstance(leaf, np.ndarray) else leaf, obs)

    def __getstate__(self) -> dict[str, Any]:
        """Returns the attributes to copy or pickle, without the results of losses."""
        return {**super().__getstate__(), "tower_stats": {}}
