"""An example model in PyTorch that sees images through a network of torchvision's, and has a memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from torch import Tensor, nn

from rlframe.models.torch.recurrent_net import RecurrentNetwork


def _mobilenet() -> nn.Module:
    try:
        from torchvision.models import mobilenet_v2
    except ImportError as error:
        raise ImportError(
            "TorchMobileV2PlusRNNModel needs torchvision, which cannot be imported; pip install torchvision, or set "
            "model.conv_filters and model.use_lstm instead."
        ) from error
    made: nn.Module = mobilenet_v2(weights=None)
    return made


class TorchMobileV2PlusRNNModel(RecurrentNetwork, nn.Module):
    """torchvision's MobileNetV2, an LSTM behind it. Weights are drawn, not loaded: nothing is fetched from the network.

    Args:
        obs_space: Images.
        action_space: Action space.
        num_outputs: Width of the outputs.
        model_config: The `model` section of the config.
        name: Name of the model.
        cnn_shape: Channels, height and width of the images.

    Raises:
        ImportError: If torchvision is not installed.

    Source: Sandler et al. 2018, "MobileNetV2: Inverted Residuals and Linear Bottlenecks".
    """

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, model_config: dict[str, Any], name: str,
        cnn_shape: Any,
    ) -> None:  # fmt: skip
        nn.Module.__init__(self)
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.lstm_state_size, self.cnn_shape = 16, list(cnn_shape)
        self.visual_size_in, self.visual_size_out = math.prod(cnn_shape), 1000
        self.cnn_model = _mobilenet()
        self.lstm = nn.LSTM(self.visual_size_out, self.lstm_state_size, batch_first=True)
        self.logits = nn.Linear(self.lstm_state_size, num_outputs)
        self.value_branch = nn.Linear(self.lstm_state_size, 1)
        self._features: Tensor | None = None

    def forward_rnn(self, inputs: Tensor, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns outputs of padded sequences of images `[B, T, channels · height · width]`, and the states after."""
        del seq_lens
        seen = self.cnn_model(inputs.reshape(-1, *self.cnn_shape)).reshape(*inputs.shape[:2], self.visual_size_out)
        hidden, cell = (part.unsqueeze(0) for part in state)
        self._features, (hidden, cell) = self.lstm(seen, (hidden, cell))
        return self.logits(self._features), [hidden.squeeze(0), cell.squeeze(0)]

    def get_initial_state(self) -> list[Any]:
        """Returns zeros for both parts of the LSTM's state."""
        return [np.zeros(self.lstm_state_size, np.float32) for _ in range(2)]

    def value_function(self) -> Tensor:
        """Returns the value of every row of the last forward pass."""
        assert self._features is not None
        values: Tensor = self.value_branch(self._features).reshape(-1)
        return values
