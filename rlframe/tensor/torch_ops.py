"""`rlframe.tensor.ops` in PyTorch; what the functions do is said there."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

abs, exp, sqrt, square, tanh = torch.abs, torch.exp, torch.sqrt, torch.square, torch.tanh
log, lgamma, digamma, atanh = torch.log, torch.lgamma, torch.digamma, torch.atanh
where, zeros_like, ones_like = torch.where, torch.zeros_like, torch.ones_like


def softplus(x: Tensor) -> Tensor:
    return functional.softplus(x)


def elu(x: Tensor) -> Tensor:
    return functional.elu(x)


def huber(x: Tensor, delta: float) -> Tensor:
    return functional.huber_loss(x, torch.zeros_like(x), reduction="none", delta=delta)


def minimum(x: Tensor, y: Any) -> Tensor:
    return torch.minimum(x, y) if isinstance(y, Tensor) else x.clamp(max=y)


def maximum(x: Tensor, y: Any) -> Tensor:
    return torch.maximum(x, y) if isinstance(y, Tensor) else x.clamp(min=y)


def clip(x: Tensor, low: float, high: float) -> Tensor:
    return x.clamp(low, high)


def sum(x: Tensor, axis: int | None) -> Tensor:
    return x.sum() if axis is None else x.sum(axis)


def mean(x: Tensor, axis: int | None, keepdims: bool) -> Tensor:
    return x.mean() if axis is None else x.mean(axis, keepdim=keepdims)


def max(x: Tensor, axis: int | None) -> Tensor:
    return x.max() if axis is None else x.amax(axis)


def min(x: Tensor, axis: int | None) -> Tensor:
    return x.min() if axis is None else x.amin(axis)


def argmax(x: Tensor, axis: int) -> Tensor:
    return x.argmax(axis)


def variance(x: Tensor) -> Tensor:
    return x.var(unbiased=False)


def sort(x: Tensor) -> Tensor:
    return x.sort(-1).values


def softmax(x: Tensor) -> Tensor:
    return x.softmax(-1)


def log_softmax(x: Tensor) -> Tensor:
    return x.log_softmax(-1)


def stop_gradient(x: Tensor) -> Tensor:
    return x.detach()


def without_gradient(function: Callable[..., Any], x: Tensor) -> Any:
    with torch.no_grad():
        return function(x)


def gradients(function: Callable[[], Tensor], weights: Sequence[Tensor]) -> Sequence[Tensor | None]:
    return torch.autograd.grad(function(), list(weights), allow_unused=True)


def cast_like(x: Tensor, like: Tensor) -> Tensor:
    return x.to(like.dtype)


def to_float(x: Tensor) -> Tensor:
    return x.float()


def to_int(x: Tensor, bits: int) -> Tensor:
    return x.to(torch.int32 if bits == 32 else torch.int64)


def reshape(x: Tensor, shape: Any) -> Tensor:
    return x.reshape(tuple(shape))


def tensor_like(values: Any, like: Tensor) -> Tensor:
    return torch.as_tensor(values, device=like.device)


def row_count(x: Tensor) -> int:
    return len(x)


def row_size(x: Tensor) -> int:
    return math.prod(x.shape[1:])


def expand_like(mask: Tensor, like: Tensor) -> Tensor:
    return mask.reshape(mask.shape + (1,) * (like.dim() - 1))


def flat_rows(x: Tensor) -> Tensor:
    # Not -1 for the size of a row: it also serves an empty batch.
    return x if x.dtype == torch.float32 and x.dim() == 2 else x.float().reshape(len(x), row_size(x))


def one_hot(x: Tensor, size: int) -> Tensor:
    return functional.one_hot(x.long(), size).float()


def concat(tensors: Sequence[Tensor], axis: int) -> Tensor:
    return torch.cat(tuple(tensors), dim=axis)


def split_last(x: Tensor, count: int) -> Tensor:
    return x.reshape(*x.shape[:-1], count, x.shape[-1] // count)


def merge_last(x: Tensor) -> Tensor:
    return x.flatten(-2)


def swap_axes(x: Tensor, one: int, other: int) -> Tensor:
    return x.transpose(one, other)


def split(x: Tensor, sizes: list[int]) -> Sequence[Tensor]:
    return torch.split(x, sizes, dim=-1)


def roll(x: Tensor, shift: int) -> Tensor:
    return torch.roll(x, shift, 0)


def boolean_mask(x: Tensor, mask: Tensor) -> Tensor:
    return x[mask]


def batched_index(x: Tensor, index: Tensor) -> Tensor:
    axis = index.dim()
    wide = index.long().reshape(*index.shape, *[1] * (x.dim() - axis)).expand(*index.shape, 1, *x.shape[axis + 1 :])
    return x.gather(axis, wide).squeeze(axis)


def split_sequences(x: Tensor, seq_lens: Tensor) -> Tensor:
    return x.reshape(seq_lens.shape[0], -1, *x.shape[1:])


def flatten_sequences(x: Tensor) -> Tensor:
    return x.flatten(0, 1)


def linear_scatter(values: Tensor, places: Tensor, size: int) -> Tensor:
    places = places.detach()
    lower = places.floor()
    upper_share = places - lower
    below = lower.nan_to_num().long()  # NaN as an index would be an IndexError; its share is NaN still
    above = (below + 1).clamp(max=size - 1)
    made = values.new_zeros(values.shape[0], size)
    # The lower place gets what the upper one does not, so none is lost where they coincide.
    made.scatter_add_(1, below, values * (1.0 - upper_share))
    return made.scatter_add_(1, above, values * upper_share)


def reverse_scan(terms: Tensor, decays: Tensor) -> Tensor:
    rows, reach = len(terms), 1
    decays = decays.clone()
    decays[rows - 1 :] = 0.0  # so that what comes round from the front is multiplied by 0
    while reach < rows and bool(decays.any()):
        terms = terms + decays * torch.roll(terms, -reach, 0)
        decays = decays * torch.roll(decays, -reach, 0)
        reach *= 2
    return terms
