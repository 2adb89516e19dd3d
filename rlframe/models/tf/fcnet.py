"""The default network for vectors."""

from __future__ import annotations

from typing import Any

from rlframe.models.layered_model import BehindMemory, FullyConnected
from rlframe.models.tf.layer_owner import TFLayerOwner
from rlframe.models.tf.tf_modelv2 import TFModelV2


class FullyConnectedNetwork(FullyConnected, TFLayerOwner, TFModelV2):
    """Dense layers from flat observations to outputs and, beside them, to a value; see `LayeredModel`.

    Its variables are those of the torch sibling: "hidden_0.weight", …, "output.bias", "free_log_std.log_std", ….
    """

    @property
    def base_model(self) -> Any:
        """The network as RLlib 1.x's Keras model, a view made anew: see `rllib_layers.fcnet_as_keras`."""
        from rlframe.models.tf.rllib_layers import fcnet_as_keras

        return fcnet_as_keras(self)


class MemoryHeads(BehindMemory, FullyConnectedNetwork):
    """Outputs and a value behind a memory."""
