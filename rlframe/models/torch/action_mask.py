"""Action masks: a model for environments whose observations say which actions are allowed."""

from __future__ import annotations

from torch import nn

from rlframe.models.action_mask import LOGIT_OF_FORBIDDEN, ActionMask
from rlframe.models.torch.fcnet import FullyConnectedNetwork
from rlframe.models.torch.layer_owner import TorchLayerOwner
from rlframe.models.torch.torch_modelv2 import TorchModelV2

__all__ = ["LOGIT_OF_FORBIDDEN", "ActionMaskModel"]


class ActionMaskModel(ActionMask, TorchLayerOwner, TorchModelV2, nn.Module):
    """A fully connected network whose logits a mask in the observations forbids; see `ActionMask`."""

    network_class = FullyConnectedNetwork
