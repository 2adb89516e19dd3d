"""The default network for images."""

from __future__ import annotations

from rlframe.models.conv_sizes import DEFAULT_FILTERS, Filters, filters_for
from rlframe.models.layered_model import Vision
from rlframe.models.tf.conv_stack import ConvStack
from rlframe.models.tf.layer_owner import TFLayerOwner
from rlframe.models.tf.rllib_layers import RLlibLayers
from rlframe.models.tf.tf_modelv2 import TFModelV2

__all__ = ["DEFAULT_FILTERS", "ConvStack", "Filters", "VisionNetwork", "filters_for"]


class VisionNetwork(Vision, RLlibLayers, TFLayerOwner, TFModelV2):
    """Convolutions, dense layers, and linear output and value heads; see `Vision` and `LayeredModel`."""
