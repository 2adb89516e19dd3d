"""The default network for vectors."""

from __future__ import annotations

from rlframe.models.layered_model import BehindMemory, FullyConnected
from rlframe.models.tf.layer_owner import TFLayerOwner
from rlframe.models.tf.rllib_layers import RLlibLayers
from rlframe.models.tf.tf_modelv2 import TFModelV2


class FullyConnectedNetwork(FullyConnected, RLlibLayers, TFLayerOwner, TFModelV2):
    """Dense layers from flat observations to outputs and, beside them, to a value; see `LayeredModel`.

    Its variables are those of the torch sibling: "hidden_0.weight", …, "output.bias", "free_log_std.log_std", ….
    """


class MemoryHeads(BehindMemory, FullyConnectedNetwork):
    """Outputs and a value behind a memory."""
