"""The default network for images."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import nn

from rlframe.fast import dense_torch as fast
from rlframe.models.actor import normalize_activation
from rlframe.models.conv_sizes import DEFAULT_FILTERS, Filters, filters_for
from rlframe.models.torch.conv_stack import ConvStack
from rlframe.models.torch.misc import activation_function, normc_linear
from rlframe.models.torch.rllib_layers import RLlibLayers, one_by_one, slim
from rlframe.models.torch.torch_modelv2 import TorchModelV2

__all__ = ["DEFAULT_FILTERS", "ConvStack", "Filters", "VisionNetwork", "filters_for"]


class VisionNetwork(RLlibLayers, TorchModelV2, nn.Module):
    """Convolutions, `post_fcnet_hiddens` dense layers, and linear output and value heads.

    Images come as [H, W, C]; pixel values are taken as they are, unscaled. Layers are also found as `_convs`,
    `_logits`, `_value_branch_separate` and `_value_branch`.

    Args:
        obs_space: Observation space of shape [H, W, C].
        action_space: Action space of the environment.
        num_outputs: Width of the outputs; None makes the features the output.
        model_config: The `model` section of the config.
        name: Name of the model.
        **options: Unused entries of `custom_model_config`, see `TorchModelV2`.
    """

    _rllib_layers: ClassVar = {
        "_convs": lambda model: model.convs.convs,
        "_logits": lambda model: model.output if len(model.dense) else one_by_one(model.output),
        "_value_branch_separate": lambda model: (
            None if model.value_convs is None else nn.Sequential(*model.value_convs.convs, one_by_one(model.value))
        ),
        "_value_branch": lambda model: slim(model.value) if model.value_convs is None else None,
    }
    _rllib_heads: ClassVar = {"_value_branch": "value"}

    def __init__(
        self,
        obs_space: Any,
        action_space: Any,
        num_outputs: int | None,
        model_config: dict[str, Any],
        name: str | None,
        **options: Any,
    ) -> None:
        nn.Module.__init__(self)
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name, **options)
        activation = normalize_activation(model_config.get("post_fcnet_activation", "relu"))
        self._dense_activation = (activation, activation_function(activation))
        self._ends_linear = not (model_config.get("no_final_linear", False) and num_outputs is not None)
        self.convs, self.dense, width = self._stack(num_outputs)
        self.output = normc_linear(width, num_outputs, 0.01) if num_outputs is not None and self._ends_linear else None
        self.num_outputs = width if num_outputs is None else num_outputs
        self.value_convs: ConvStack | None = None
        self.value_dense: nn.ModuleList | None = None
        self.value: nn.Linear | None = None
        if self.uses_value_function:
            if not model_config.get("vf_share_layers", True):
                self.value_convs, self.value_dense, width = self._stack(None)
            self.value = normc_linear(width, 1, 0.01)
        self._features: torch.Tensor | None = None
        self._images: torch.Tensor | None = None

    def _stack(self, num_outputs: int | None) -> tuple[ConvStack, nn.ModuleList, int]:
        """Returns convolutions, dense layers behind them, and the width of what they give.

        With `no_final_linear` the last layer has `num_outputs` units.
        """
        config = self.model_config
        filters = [list(layer) for layer in filters_for(self.obs_space.shape, config.get("conv_filters"))]
        hiddens = [int(units) for units in config.get("post_fcnet_hiddens") or ()]
        if num_outputs is not None and not self._ends_linear:
            if hiddens:
                hiddens[-1] = num_outputs
            else:
                filters[-1][0] = num_outputs
        activation = config.get("conv_activation", "relu")
        convs = ConvStack(self.obs_space.shape, filters, activation, reduce=not hiddens)
        widths = [convs.out_size, *hiddens]
        dense = nn.ModuleList(normc_linear(n_in, n_out, 1.0) for n_in, n_out in zip(widths, hiddens, strict=False))
        return convs, dense, widths[-1]

    def _through(self, convs: ConvStack, dense: nn.ModuleList, images: torch.Tensor) -> torch.Tensor:
        x: torch.Tensor = convs(images)
        for layer in dense:
            x = fast.dense(x, layer, *self._dense_activation)
        return x

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[torch.Tensor, list[Any]]:  # noqa: ARG002
        """Returns outputs, float `[B, num_outputs]`, of the images `input_dict["obs"]`, and the state unchanged."""
        images = input_dict["obs"]
        self._images = None if self.value_convs is None else images
        self._features = self._through(self.convs, self.dense, images)
        return (self._features if self.output is None else self.output(self._features)), state

    def value_function(self) -> torch.Tensor:
        """Returns the value of every row of the last forward pass. Float `[B]`.

        Raises:
            ValueError: If no forward pass came before, or the network was built without a value head.
        """
        if self.value is None:
            raise ValueError(f"{self.name} was built without a value head (uses_value_function=False).")
        features = self._features
        if features is None:
            raise ValueError("value_function() speaks of the last forward pass: call the model first.")
        if self.value_convs is not None and self.value_dense is not None and self._images is not None:
            features = self._through(self.value_convs, self.value_dense, self._images)
        result: torch.Tensor = self.value(features).squeeze(1)
        return result
