"""The default network for nested observations with images among them."""

from __future__ import annotations

from torch import nn

from rlframe.models.complex_model import ComplexInput
from rlframe.models.torch.layer_owner import TorchLayerOwner
from rlframe.models.torch.torch_modelv2 import TorchModelV2


class ComplexInputNetwork(ComplexInput, TorchLayerOwner, TorchModelV2, nn.Module):
    """Convolutions, one-hot parts and vectors side by side, then dense layers; see `ComplexInput`."""
