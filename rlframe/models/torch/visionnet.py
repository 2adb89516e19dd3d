"""The default network for images, with RLlib's names of its layers."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import nn

from rlframe.models.conv_sizes import DEFAULT_FILTERS, Filters, filters_for
from rlframe.models.layered_model import Vision
from rlframe.models.torch.conv_stack import ConvStack
from rlframe.models.torch.layer_owner import TorchLayerOwner
from rlframe.models.torch.rllib_layers import RLlibLayers, one_by_one, slim
from rlframe.models.torch.torch_modelv2 import TorchModelV2

__all__ = ["DEFAULT_FILTERS", "ConvStack", "Filters", "VisionNetwork", "filters_for"]


class VisionNetwork(Vision, TorchLayerOwner, RLlibLayers, TorchModelV2, nn.Module):
    """Convolutions, dense layers, and linear output and value heads; see `Vision` and `LayeredModel`.

    Layers are also found as `_convs`, `_logits`, `_value_branch_separate` and `_value_branch`.
    """

    _rllib_layers: ClassVar[Any] = {
        "_convs": lambda model: model.convs.convs,
        "_logits": lambda model: (
            model._modules.get("output") if "dense" in model._modules else one_by_one(model._modules.get("output"))
        ),
        "_value_branch_separate": lambda model: (
            nn.Sequential(*model.value_convs.convs, one_by_one(model.value))
            if "value_convs" in model._modules
            else None
        ),
        "_value_branch": lambda model: None if "value_convs" in model._modules else slim(model._modules.get("value")),
    }
    _rllib_heads: ClassVar[Any] = {"_value_branch": "value"}
