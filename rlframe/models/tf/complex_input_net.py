"""The default network for nested observations with images among them."""

from __future__ import annotations

from rlframe.models.complex_model import ComplexInput
from rlframe.models.tf.layer_owner import TFLayerOwner
from rlframe.models.tf.tf_modelv2 import TFModelV2


class ComplexInputNetwork(ComplexInput, TFLayerOwner, TFModelV2):
    """Convolutions, one-hot parts and vectors side by side, then dense layers; see `ComplexInput`."""
