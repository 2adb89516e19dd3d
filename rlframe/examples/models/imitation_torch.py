"""An example model in PyTorch with a loss of its own: it also imitates recorded actions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rlframe.models.obs_layout import restore_original_dimensions
from rlframe.models.torch.fcnet import FullyConnectedNetwork
from rlframe.models.torch.torch_action_dist import TorchCategorical
from rlframe.models.torch.torch_modelv2 import TorchModelV2
from rlframe.offline.json_reader import JsonReader


class TorchCustomLossModel(TorchModelV2, nn.Module):
    """A dense network that adds, to each of the algorithm's losses, 10 times −log π(a | s) of recorded rows.

    Args:
        obs_space: Preprocessed observation space.
        action_space: A Discrete space.
        num_outputs: Number of logits.
        model_config: The `model` section of the config.
        name: Name of the model.
        input_files: Files of batches in JSON, as `JsonReader` takes them; each loss takes the next batch.
    """

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, model_config: dict[str, Any], name: str,
        input_files: Any,
    ) -> None:  # fmt: skip
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.input_files = input_files
        self.reader = JsonReader(input_files)
        self.fcnet = FullyConnectedNetwork(obs_space, action_space, num_outputs, model_config, f"{name}_fcnet")
        self.policy_loss_metric = self.imitation_loss_metric = float("nan")

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns the network's outputs."""
        return self.fcnet(input_dict, state, seq_lens)

    def value_function(self) -> Tensor:
        """Returns the value of every row of the last forward pass."""
        values: Tensor = self.fcnet.value_function()
        return values

    def custom_loss(self, policy_loss: Any, loss_inputs: Any) -> Any:
        """Returns the losses, each with the loss of imitation."""
        del loss_inputs
        batch, device = self.reader.next(), policy_loss[0].device
        rows = torch.as_tensor(batch["obs"], dtype=torch.float32, device=device)
        logits, _ = self.forward({"obs": restore_original_dimensions(rows, self.obs_space)}, [], None)
        imitation = -TorchCategorical(logits).logp(torch.as_tensor(batch["actions"], device=device)).mean()
        self.imitation_loss_metric = imitation.item()
        self.policy_loss_metric = sum(loss.item() for loss in policy_loss) / len(policy_loss)
        return [loss + 10.0 * imitation for loss in policy_loss]

    def metrics(self) -> dict[str, Any]:
        """Returns `policy_loss` (the mean of the algorithm's) and `imitation_loss` of the last step."""
        return {"policy_loss": self.policy_loss_metric, "imitation_loss": self.imitation_loss_metric}
