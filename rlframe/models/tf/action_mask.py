"""Action masks: a model for environments whose observations say which actions are allowed."""

from __future__ import annotations

from rlframe.models.action_mask import LOGIT_OF_FORBIDDEN, ActionMask
from rlframe.models.tf.fcnet import FullyConnectedNetwork
from rlframe.models.tf.layer_owner import TFLayerOwner
from rlframe.models.tf.tf_modelv2 import TFModelV2

__all__ = ["LOGIT_OF_FORBIDDEN", "ActionMaskModel"]


class ActionMaskModel(ActionMask, TFLayerOwner, TFModelV2):
    """A fully connected network whose logits a mask in the observations forbids; see `ActionMask`."""

    network_class = FullyConnectedNetwork
