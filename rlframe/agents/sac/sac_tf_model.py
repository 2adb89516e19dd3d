"""SAC's networks as one model, in TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlframe.agents.sac.sac_model import SACModelMethods, log_of_alpha
from rlframe.models.tf.tf_modelv2 import TFModelV2
from rlframe.utils.quiet_tf import tf


class SACTFModel(SACModelMethods, TFModelV2):
    """An actor, critics and log α; programs override its `build_*` and `get_*` methods, see `SACModelMethods`.

    Args:
        obs_space: Preprocessed observation space.
        action_space: Action space.
        num_outputs: Not used: networks have widths of their own.
        model_config: The `model` section of the config.
        name: Name of the model.
        policy_model_config: The `policy_model` section.
        q_model_config: The `Q_model` section.
        twin_q: Whether there are two critics.
        initial_alpha: What α begins with.
        target_entropy: In nats; None or "auto" takes −A, or 0.98 log A for A choices.
    """

    def __init__(
        self,
        obs_space: Any,
        action_space: Any,
        num_outputs: int | None,
        model_config: dict[str, Any],
        name: str,
        policy_model_config: Mapping[str, Any] | None = None,
        q_model_config: Mapping[str, Any] | None = None,
        twin_q: bool = False,
        initial_alpha: float = 1.0,
        target_entropy: Any = None,
    ) -> None:
        TFModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        self.make_networks(policy_model_config, q_model_config, twin_q, target_entropy)
        self.log_alpha = tf.Variable(log_of_alpha(initial_alpha), dtype=tf.float32, name="log_alpha")

    @property
    def alpha(self) -> Any:
        """α, a scalar tensor."""
        return tf.exp(self.log_alpha)


#: The model by a name that is the same in both frameworks.
SACModel = SACTFModel
