"""DQN's model interface in TensorFlow."""

from __future__ import annotations

from rlframe.agents.dqn.dqn_model import QHeads
from rlframe.models.tf.layer_owner import TFLayerOwner
from rlframe.models.tf.tf_modelv2 import TFModelV2


class DQNTFModel(QHeads, TFLayerOwner, TFModelV2):
    """Interface that DQN puts on a model, see `QHeads`."""


#: The interface by a name that is the same in both frameworks.
DQNModel = DQNTFModel
