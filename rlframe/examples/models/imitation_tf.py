"""An example model in TensorFlow with a loss of its own: it also imitates recorded actions."""

from __future__ import annotations

from typing import Any, TypeAlias

from rlframe.models.obs_layout import restore_original_dimensions
from rlframe.models.tf.fcnet import FullyConnectedNetwork
from rlframe.models.tf.tf_action_dist import Categorical
from rlframe.models.tf.tf_modelv2 import TFModelV2
from rlframe.offline.json_reader import JsonReader
from rlframe.utils.quiet_tf import tf

Tensor: TypeAlias = Any


class CustomLossModel(TFModelV2):
    """A dense network that adds, to the algorithm's loss, 10 times −log π(a | s) of recorded rows.

    `model_config["custom_model_config"]["input_files"]` are files of batches in JSON, as `JsonReader` takes them; each
    loss takes the next batch.
    """

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, model_config: dict[str, Any], name: str
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.fcnet = FullyConnectedNetwork(obs_space, action_space, num_outputs, model_config, f"{name}_fcnet")
        self.policy_loss: Tensor = None
        self.imitation_loss: Tensor = None

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns the network's outputs."""
        return self.fcnet(input_dict, state, seq_lens)

    def value_function(self) -> Tensor:
        """Returns the value of every row of the last forward pass."""
        return self.fcnet.value_function()

    def custom_loss(self, policy_loss: Any, loss_inputs: Any) -> Any:
        """Returns the loss with that of imitation."""
        del loss_inputs
        batch = JsonReader(self.model_config["custom_model_config"]["input_files"]).tf_input_ops()
        rows = tf.cast(batch["obs"], tf.float32)
        logits, _ = self.forward({"obs": restore_original_dimensions(rows, self.obs_space)}, [], None)
        self.policy_loss = policy_loss
        self.imitation_loss = tf.reduce_mean(-Categorical(logits).logp(batch["actions"]))
        return policy_loss + 10.0 * self.imitation_loss

    def metrics(self) -> dict[str, Any]:
        """Returns `policy_loss` and `imitation_loss` of the last step."""
        return {"policy_loss": self.policy_loss, "imitation_loss": self.imitation_loss}
