"""Stacks of convolutions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from rlframe.models.conv_sizes import ConvPlan, Filters, plan_convs
from rlframe.models.torch import conv_pieces as pieces
from rlframe.models.torch.misc import ImageConv2d, SlimConv2d


class ConvStack(nn.Module):
    """Convolutions on images in the order [H, W, C], padded as `rlframe.models.conv_sizes.plan_convs` says.

    Args:
        shape: Height, width and channels of the images.
        filters: [out_channels, kernel, stride] of every convolution, and the padding where it is named.
        activation: Name of the activation behind every convolution.
        reduce: Whether the last convolution must leave 1×1.

    Raises:
        ConfigError: If it must and does not, or a filter is larger than its input.
    """

    def __init__(self, shape: Sequence[int], filters: Filters, activation: str | None, *, reduce: bool = True) -> None:
        super().__init__()
        plans, self.out_size = plan_convs(shape, filters, reduce=reduce)
        self._shape = tuple(int(size) for size in shape)
        self.convs = nn.Sequential(*(self._layer(plan, activation) for plan in plans))

    @staticmethod
    def _layer(plan: ConvPlan, activation: str | None) -> SlimConv2d:
        layer = SlimConv2d(*plan[:5], activation_fn=activation)
        next(part for part in layer.modules() if isinstance(part, ImageConv2d)).covers_input = plan.covers_input
        return layer

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Returns flat features. Images `[B, H, W, C]`, or flat ones, of any dtype to float `[B, out_size]`."""
        images = images.reshape(-1, *self._shape) if images.dim() == 2 else images
        first = pieces.leading_layers(self.convs) if pieces.worthwhile(images) else []
        if first:
            maps = pieces.convolve(images, first)
        else:
            maps = images.permute(0, 3, 1, 2)  # a view: images in this order are what PyTorch calls channels-last
        for layer in list(self.convs)[len(first) :]:
            maps = layer(maps)
        return maps.flatten(1)
