"""Convolutions of many images, some at a time, so that what lies between two layers stays in the processor's cache.

On the CPU a batch of 256 images of 84×84×4 is 29 MB of floats, and the first maps are 13 MB. Whole batches write these
to memory, read them back, and give the memory to the system, which clears it for the next batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own abbreviation
from torch import Tensor, nn

from rlframe.models.torch.misc import ImageConv2d, SlimConv2d

#: Bytes of the images that go together, as floats: as large as a core's part of the cache is today.
PIECE_BYTES = 1 << 22
_NHWC = torch.channels_last


class Layer(NamedTuple):
    """A convolution with ReLU.

    Attributes:
        padding: (left, right, top, bottom); None for none.
        stride: Vertical and horizontal stride.
        weight: Float `[out, in, height, width]`.
        bias: Float `[out]`.
    """

    padding: tuple[int, int, int, int] | None
    stride: tuple[int, ...]
    weight: Tensor
    bias: Tensor


def piece_rows(images: Tensor) -> int:
    """Returns how many of the images `[B, H, W, C]` go together, on as many threads as PyTorch has."""
    return max(PIECE_BYTES // (4 * images[0].numel()), 1) * torch.get_num_threads()


def worthwhile(images: Tensor) -> bool:
    """Returns whether images `[B, H, W, C]` are many, lie on the CPU, and nothing but autograd looks on."""
    if (
        images.requires_grad
        or torch._C._get_tracing_state() is not None
        or torch.compiler.is_compiling()
        or torch.is_autocast_enabled("cpu")
        or torch._C._are_functorch_transforms_active()
    ):
        return False
    return images.device.type == "cpu" and len(images) > 0 and len(images) > piece_rows(images)


def leading_layers(modules: Iterable[nn.Module]) -> list[Layer]:
    """Returns the first modules as `Layer`s, up to one that is something else, or has hooks."""
    found: list[Layer] = []
    for module in modules:
        parts: list[Any] = list(module._model) if type(module) is SlimConv2d else []
        padding = parts.pop(0).padding if parts and type(parts[0]) is nn.ZeroPad2d else None
        if [type(part) for part in parts] != [ImageConv2d, nn.ReLU] or parts[0].covers_input or _hooked(module):
            break
        found.append(Layer(padding, parts[0].stride, parts[0].weight, parts[0].bias))
    return found


def _hooked(module: nn.Module) -> bool:
    return any(
        part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks
        for part in module.modules()
    )


def convolve(images: Tensor, layers: Sequence[Layer]) -> Tensor:
    """Returns the maps behind the layers, with the numbers and gradients that whole batches have, to rounding.

    Args:
        images: Images of any dtype, `[B, H, W, C]`, without gradient.
        layers: The convolutions.

    Returns:
        Float `[B, out, H', W']`.
    """
    parameters = [parameter for layer in layers for parameter in (layer.weight, layer.bias)]
    maps: Tensor = _Pieces.apply(images, tuple(layers), *parameters)  # type: ignore[no-untyped-call]
    return maps


def _whole(images: Tensor, layers: Sequence[Layer], parameters: Sequence[Tensor]) -> Tensor:
    """Returns what `convolve` does, by way of autograd."""
    maps = images.permute(0, 3, 1, 2).to(parameters[0].dtype)
    for index, layer in enumerate(layers):
        maps = F.pad(maps, layer.padding) if layer.padding else maps
        maps = F.conv2d(maps, parameters[2 * index], parameters[2 * index + 1], layer.stride).relu()
    return maps


class _Inputs:
    """Gives the first layer's inputs, padded and as floats, piece after piece in the same memory."""

    def __init__(self, images: Tensor, layer: Layer, rows: int) -> None:
        left, right, top, bottom = layer.padding or (0, 0, 0, 0)
        _, height, width, channels = images.shape
        shape = (rows, top + height + bottom, left + width + right, channels)
        make = torch.empty if layer.padding is None else torch.zeros
        self._images, self._padded = images, make(shape, dtype=layer.weight.dtype)
        self._inside = self._padded[:, top : top + height, left : left + width]

    def at(self, start: int) -> Tensor:
        """Returns the inputs of the piece that begins at image `start`, valid until the next call."""
        part = self._images[start : start + len(self._padded)]
        self._inside[: len(part)].copy_(part)
        return self._padded[: len(part)].permute(0, 3, 1, 2)


class _Pieces(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, layers: tuple[Layer, ...], *parameters: Tensor) -> Tensor:
        kernels = [weight.contiguous(memory_format=_NHWC) for weight in parameters[::2]]
        rows, made, kept = piece_rows(images), None, []
        inputs = _Inputs(images, layers[0], rows)
        for start in range(0, len(images), rows):
            maps = inputs.at(start)
            for index, (layer, kernel, bias) in enumerate(zip(layers, kernels, parameters[1::2], strict=True)):
                if index:
                    maps = F.pad(maps, layer.padding) if layer.padding else maps
                    kept.append(maps)
                maps = F.conv2d(maps, kernel, bias, layer.stride).relu_()
            made = maps.new_empty((len(images), *maps.shape[1:])) if made is None else made
            made[start : start + rows] = maps
        assert made is not None
        ctx.layers, ctx.rows = layers, rows
        # The first layer's inputs are made again: that costs less than the memory of theirs as floats.
        ctx.save_for_backward(images, made, *parameters, *(kept if any(ctx.needs_input_grad) else ()))
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        layers, rows = ctx.layers, ctx.rows
        images, made, *saved = ctx.saved_tensors
        parameters, kept = saved[: 2 * len(layers)], saved[2 * len(layers) :]
        if torch.is_grad_enabled():  # gradients of gradients
            wanted = [parameter for parameter in parameters if parameter.requires_grad]
            twice = iter(torch.autograd.grad(_whole(images, layers, parameters), wanted, gradients, create_graph=True))
            return (None, None, *(next(twice) if parameter.requires_grad else None for parameter in parameters))
        kernels = [weight.contiguous(memory_format=_NHWC) for weight in parameters[::2]]
        totals: list[Tensor] = []
        behind = len(layers) - 1  # how many inputs were kept of each piece
        first = _Inputs(images, layers[0], rows)
        for piece, start in enumerate(range(0, len(images), rows)):
            part = slice(start, start + rows)
            inputs = [first.at(start), *kept[piece * behind : (piece + 1) * behind]]
            found = _backward(layers, kernels, inputs, made[part], gradients[0][part])
            totals = found if piece == 0 else [total.add_(more) for total, more in zip(totals, found, strict=True)]
        return (None, None, *totals)


def _backward(
    layers: Sequence[Layer], kernels: Sequence[Tensor], inputs: Sequence[Tensor], made: Tensor, gradient: Tensor
) -> list[Tensor]:
    """Returns the gradients of each layer's weight and bias for one piece.

    Args:
        layers: Paddings and strides.
        kernels: Weights of the layers.
        inputs: Inputs of the layers, padded.
        made: Outputs of the last layer.
        gradient: The loss's gradient by these.
    """
    found: list[Tensor] = []
    for index in reversed(range(len(layers))):
        gradient = torch.ops.aten.threshold_backward(gradient, made, 0).contiguous(memory_format=_NHWC)
        inside, weight, bias = torch.ops.aten.convolution_backward(
            gradient, inputs[index], kernels[index], [len(kernels[index])], layers[index].stride,
            [0, 0], [1, 1], False, [0, 0], 1, [index > 0, True, True],
        )  # fmt: skip
        found = [weight, bias, *found]
        if index:
            gradient, made = _unpadded(inside, layers[index]), _unpadded(inputs[index], layers[index])
    return found


def _unpadded(maps: Tensor, layer: Layer) -> Tensor:
    """Returns maps without the padding that a layer gave them."""
    if layer.padding is None:
        return maps
    left, right, top, bottom = layer.padding
    return maps[:, :, top : maps.shape[2] - bottom, left : maps.shape[3] - right]
