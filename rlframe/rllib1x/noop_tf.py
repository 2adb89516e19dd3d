"""RLlib's model that gives observations as they are, in TensorFlow."""

from __future__ import annotations

from typing import Any

from rlframe.models.modelv2 import OBS_FLAT
from rlframe.models.tf.tf_modelv2 import TFModelV2
from rlframe.utils.quiet_tf import tf


class NoopModel(TFModelV2):
    """Gives the observations, flat: what programs of RLlib's DDPG and SAC put in front of actor and critics."""

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Any, list[Any]]:
        """Returns flat observations, float `[B, D]`, and the state as it was."""
        del seq_lens
        return tf.cast(input_dict[OBS_FLAT], tf.float32), state
