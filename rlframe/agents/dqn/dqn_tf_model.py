"""DQN's model interface in TensorFlow, with RLlib's names of its heads."""

from __future__ import annotations

from typing import Any

from rlframe.agents.dqn.dqn_model import QHeads
from rlframe.models.tf.layer_owner import TFLayerOwner
from rlframe.models.tf.rllib_layers import KerasView, head_of
from rlframe.models.tf.tf_modelv2 import TFModelV2


class DQNTFModel(QHeads, TFLayerOwner, TFModelV2):
    """Interface that DQN puts on a model, see `QHeads`; its heads are also Keras models of the trunk's features.

    `q_value_head` gives what `get_q_value_distributions` does, `state_value_head`, with dueling, state values.
    """

    q_value_head = KerasView(lambda model: head_of(model, model.advantage_layers, model.distributions_of))
    state_value_head = KerasView(lambda model: _state_value_head(model))


def _state_value_head(model: Any) -> Any:
    if not model.state_value_layers:
        raise AttributeError(f"{type(model).__name__} has no state_value_head without dueling")
    return head_of(model, model.state_value_layers)


#: The interface by a name that is the same in both frameworks.
DQNModel = DQNTFModel
