"""The default network for nested observations with images among them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own abbreviation
from torch import nn

from rlframe.fast import dense_torch as fast
from rlframe.models.actor import normalize_activation
from rlframe.models.dist_plan import space_struct
from rlframe.models.nested_parts import nested_leaves, part_name
from rlframe.models.torch.misc import activation_function, normc_linear
from rlframe.models.torch.torch_modelv2 import TorchModelV2
from rlframe.models.torch.visionnet import ConvStack, filters_for
from rlframe.utils.errors import UnsupportedSpaceException


class ComplexInputNetwork(TorchModelV2, nn.Module):
    """Images through convolutions, discrete parts one-hot, vectors as they are; all concatenated, then dense layers.

    The dense layers are `post_fcnet_hiddens`; output and value are linear heads behind them. `conv_filters` applies to
    every image; images of different sizes need sizes with default filters.

    Args:
        obs_space: Flat space with the nested one as `original_space`, or the nested space itself.
        action_space: Action space of the environment.
        num_outputs: Width of the outputs; None makes the features the output.
        model_config: The `model` section of the config.
        name: Name of the model.
        **options: Unused entries of `custom_model_config`, see `TorchModelV2`.

    Raises:
        UnsupportedSpaceException: If the space is not nested, or a part of it cannot be handled.
    """

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
        original = getattr(self.obs_space, "original_space", self.obs_space)
        if space_struct(original) is original:
            raise UnsupportedSpaceException(
                f"ComplexInputNetwork wants a Dict or Tuple observation space; got {original}."
            )
        self.convs = nn.ModuleDict()
        width = 0
        self._parts: list[tuple[tuple[Any, ...], str, int]] = []
        for path, space in nested_leaves(space_struct(original)):
            kind, size = self._part(path, space)
            self._parts.append((path, kind, size))
            width += size
        activation = normalize_activation(model_config.get("post_fcnet_activation", "relu"))
        self._dense_activation = (activation, activation_function(activation))
        hiddens = [int(units) for units in model_config.get("post_fcnet_hiddens") or ()]
        linear = num_outputs is not None and not model_config.get("no_final_linear", False)
        if num_outputs is not None and not linear:
            hiddens[-1:] = [num_outputs]
        widths = [width, *hiddens]
        self.dense = nn.ModuleList(normc_linear(n_in, n_out, 1.0) for n_in, n_out in zip(widths, hiddens, strict=False))
        self.output = normc_linear(widths[-1], num_outputs, 0.01) if linear and num_outputs is not None else None
        self.value = normc_linear(widths[-1], 1, 0.01) if self.uses_value_function else None
        self.num_outputs = widths[-1] if num_outputs is None else num_outputs
        self._features: torch.Tensor | None = None

    def _part(self, path: tuple[Any, ...], space: Any) -> tuple[str, int]:
        """Returns the kind of a leaf and its number of features; adds convolutions for images."""
        names = {base.__name__ for base in type(space).__mro__}
        if "Discrete" in names:
            return "one_hot", int(space.n)
        if "MultiDiscrete" in names:
            return "one_hot", int(np.sum(space.nvec))
        if space.shape is None:
            raise UnsupportedSpaceException(
                f"ComplexInputNetwork cannot handle the part {path} of the observations: {space}."
            )
        if len(space.shape) != 3:
            return "flat", math.prod(space.shape)
        filters = filters_for(space.shape, self.model_config.get("conv_filters"))
        convs = ConvStack(space.shape, filters, self.model_config.get("conv_activation", "relu"), reduce=False)
        self.convs[part_name(path)] = convs
        return "image", convs.out_size

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[torch.Tensor, list[Any]]:  # noqa: ARG002
        """Returns outputs, float `[B, num_outputs]`, of the nested `input_dict["obs"]`, and the state unchanged."""
        pieces = []
        for path, kind, size in self._parts:
            leaf = input_dict["obs"]
            for key in path:
                leaf = leaf[key]
            if kind == "image":
                pieces.append(self.convs[part_name(path)](leaf))
            elif kind == "one_hot" and leaf.numel() != leaf.shape[0] * size:
                pieces.append(self._one_hot(leaf, path))
            else:
                pieces.append(leaf.reshape(leaf.shape[0], -1).float())
        x = torch.cat(pieces, dim=1)
        for layer in self.dense:
            x = fast.dense(x, layer, *self._dense_activation)
        self._features = x
        return (x if self.output is None else self.output(x)), state

    def _one_hot(self, leaf: torch.Tensor, path: tuple[Any, ...]) -> torch.Tensor:
        """Returns discrete observations that came without preprocessing as float one-hot rows `[B, n]`."""
        space = space_struct(getattr(self.obs_space, "original_space", self.obs_space))
        for key in path:
            space = space[key]
        if hasattr(space, "n"):
            index = leaf.reshape(-1).long() - int(getattr(space, "start", 0))
            return F.one_hot(index, int(space.n)).float()
        columns = leaf.reshape(leaf.shape[0], -1).long().unbind(1)
        counts = np.asarray(space.nvec).reshape(-1)
        return torch.cat([F.one_hot(column, int(n)).float() for column, n in zip(columns, counts, strict=True)], dim=1)

    def value_function(self) -> torch.Tensor:
        """Returns the value of every row of the last forward pass. Float `[B]`.

        Raises:
            ValueError: If no forward pass came before, or the network was built without a value head.
        """
        if self.value is None:
            raise ValueError(f"{self.name} was built without a value head (uses_value_function=False).")
        if self._features is None:
            raise ValueError("value_function() speaks of the last forward pass: call the model first.")
        result: torch.Tensor = self.value(self._features).squeeze(1)
        return result
