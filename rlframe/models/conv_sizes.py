"""Sizes of convolutions on images: what the default networks of every framework consist of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from rlframe.utils.errors import ConfigError

Filters: TypeAlias = Sequence[Sequence[Any]]
Size2D: TypeAlias = "int | Sequence[int]"

#: Image height and width -> [out_channels, kernel, stride] of every convolution, the last of which leaves 1×1.
DEFAULT_FILTERS: dict[tuple[int, int], Filters] = {
    (42, 42): [[16, [4, 4], 2], [32, [4, 4], 2], [256, [11, 11], 1]],
    (84, 84): [[16, [8, 8], 4], [32, [4, 4], 2], [256, [11, 11], 1]],
    (240, 320): [[16, [12, 16], [7, 9]], [32, [6, 6], 4], [256, [9, 9], 1]],
    (480, 640): [[16, [24, 32], [14, 18]], [32, [6, 6], 4], [256, [9, 9], 1]],
}


class ConvPlan(NamedTuple):
    """One convolution of a stack.

    Attributes:
        in_channels: Channels of its inputs.
        out_channels: Channels of its outputs.
        kernel: Height and width of the filter.
        stride: Vertical and horizontal stride.
        padding: (left, right, top, bottom); None for none.
        covers_input: Whether the filter covers its whole input: a dense layer on all of it.
    """

    in_channels: int
    out_channels: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int] | None
    covers_input: bool


def pair(size: Size2D) -> tuple[int, int]:
    """Returns (height, width) of a size that may be one number for both."""
    if isinstance(size, int):
        return size, size
    first, second = size
    return int(first), int(second)


def same_padding(
    in_size: Size2D, filter_size: Size2D, stride_size: Size2D
) -> tuple[tuple[int, int, int, int], tuple[int, int]]:
    """Returns the padding with which a convolution gives ceil(size / stride) outputs, and that output size.

    Args:
        in_size: Height and width of the input.
        filter_size: Height and width of the filter.
        stride_size: Vertical and horizontal stride.

    Returns:
        (left, right, top, bottom), the odd pixel at the right and bottom; and (height, width) of the output.
    """
    (in_h, in_w), (k_h, k_w), (s_h, s_w) = pair(in_size), pair(filter_size), pair(stride_size)
    out_h, out_w = math.ceil(in_h / s_h), math.ceil(in_w / s_w)
    pad_h = max((out_h - 1) * s_h + k_h - in_h, 0)
    pad_w = max((out_w - 1) * s_w + k_w - in_w, 0)
    return (pad_w // 2, pad_w - pad_w // 2, pad_h // 2, pad_h - pad_h // 2), (out_h, out_w)


def valid_size(in_size: Size2D, filter_size: Size2D, stride_size: Size2D) -> tuple[int, int]:
    """Returns height and width of what a convolution without padding gives; 0 or less where the filter does not fit."""
    pairs = zip(pair(in_size), pair(filter_size), pair(stride_size), strict=True)
    height, width = ((size - kernel) // stride + 1 for size, kernel, stride in pairs)
    return height, width


class DefaultFilters(list[list[Any]]):
    """Defaults of one size of images, as they are written into a config that has none: other sizes have their own."""


def filters_for(shape: Sequence[int], given: Filters | None) -> Filters:
    """Returns the convolutions for images of `shape` [H, W, C]: the given ones, or a copy of the defaults of that size.

    Raises:
        ConfigError: If none are given and there are no defaults for the size.
    """
    if given and not isinstance(given, DefaultFilters):
        return given
    size = (int(shape[0]), int(shape[1]))
    if size not in DEFAULT_FILTERS:
        known = ", ".join(f"{height}x{width}" for height, width in DEFAULT_FILTERS)
        raise ConfigError(
            f"No default convolutions for images of {size[0]}x{size[1]} (there are for {known}). Set "
            f"model.conv_filters to [[out_channels, kernel, stride], ...] whose last layer leaves 1x1, such as "
            f"{fitting_filters(size)}, or resize the images to 84x84."
        )
    return DefaultFilters([channels, list(pair(kernel)), stride] for channels, kernel, stride in DEFAULT_FILTERS[size])


def fitting_filters(size: tuple[int, int]) -> Filters:
    """Returns convolutions for images of any height and width: halved until 12 pixels are left, then covered."""
    filters: list[list[Any]] = []
    height, width = size
    while max(height, width) > 12:
        kernel, stride = (8, 4) if not filters and max(size) > 48 else (4, 2)
        filters.append([32 if filters else 16, [kernel, kernel], stride])
        height, width = math.ceil(height / stride), math.ceil(width / stride)
    return [*filters, [256, [height, width], 1]]


def plan_convs(shape: Sequence[int], filters: Filters, *, reduce: bool = True) -> tuple[list[ConvPlan], int]:
    """Returns the convolutions of a stack, and how many features they leave.

    Where a filter names no padding, all but the last keep ceil(size / stride) ("same"), the last is "valid".

    Args:
        shape: Height, width and channels of the images.
        filters: [out_channels, kernel, stride] of every convolution, or [out_channels, kernel, stride, padding].
        reduce: Whether the last convolution must leave 1×1.

    Raises:
        ConfigError: If it must and does not, or a filter is larger than its input.
    """
    height, width, channels = (int(n) for n in shape)
    size = (height, width)
    sizes = [size]
    plans: list[ConvPlan] = []
    for index, (out_channels, kernel, stride, *named) in enumerate(filters):
        padding: tuple[int, int, int, int] | None = None
        covers = pair(kernel) == size
        if (named or ["valid" if index == len(filters) - 1 else "same"])[0] == "valid":
            size = valid_size(size, kernel, stride)
        else:
            padding, size = same_padding(size, kernel, stride)
        sizes.append(size)
        plans.append(ConvPlan(channels, int(out_channels), pair(kernel), pair(stride), padding, covers and not padding))
        channels = int(out_channels)
    if min(size) < 1 or (reduce and size != (1, 1)):
        raise ConfigError(_does_not_reduce(filters, sizes))
    return plans, channels * size[0] * size[1]


def _does_not_reduce(filters: Filters, sizes: list[tuple[int, int]]) -> str:
    chain = " -> ".join(f"{height}x{width}" for height, width in sizes)
    height, width = sizes[-2]
    return (
        f"model.conv_filters {[list(layer) for layer in filters]} take images through the sizes {chain}; the last "
        f"layer must leave 1x1. Give it the kernel [{height}, {width}] with stride 1, or set "
        f"model.post_fcnet_hiddens where the filters fit the image."
    )
