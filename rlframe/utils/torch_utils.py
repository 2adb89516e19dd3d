"""Small torch functions that losses and models of users import."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlframe.utils.flat_inputs import flat_leaves
from rlframe.utils.numpy import FLOAT_MAX, FLOAT_MIN, SMALL_NUMBER, convert_to_numpy
from rlframe.utils.spaces.old_gym import converted

__all__ = [
    "FLOAT_MAX",
    "FLOAT_MIN",
    "Swish",
    "apply_grad_clipping",
    "atanh",
    "concat_multi_gpu_td_errors",
    "convert_to_non_torch_type",
    "convert_to_torch_tensor",
    "explained_variance",
    "flatten_inputs_to_1d_tensor",
    "get_device",
    "global_norm",
    "huber_loss",
    "l2_loss",
    "minimize_and_clip",
    "one_hot",
    "reduce_mean_ignore_inf",
    "sequence_mask",
    "set_torch_seed",
    "softmax_cross_entropy_with_logits",
]


def apply_grad_clipping(policy: Any, optimizer: torch.optim.Optimizer, loss: Any) -> dict[str, float]:  # noqa: ARG001
    """Scales gradients down, in place, to a global norm of at most `policy.config["grad_clip"]` per parameter group.

    Args:
        policy: Whose config says how much; None or 0 there means no clipping.
        optimizer: Whose parameters have gradients.
        loss: Not used; there because it is the signature of `extra_grad_process_fn`.

    Returns:
        `{"grad_gnorm": norm of all gradients before clipping}`; `{}` without clipping or gradients.
    """
    limit = policy.config.get("grad_clip")
    if not limit:
        return {}
    squares = []
    for group in optimizer.param_groups:
        params = [p for p in group["params"] if p.grad is not None]
        if params:
            squares.append(nn.utils.clip_grad_norm_(params, limit).square())
    return {"grad_gnorm": math.sqrt(float(sum(squares)))} if squares else {}


def minimize_and_clip(optimizer: torch.optim.Optimizer, clip_val: float | None = 10.0) -> None:
    """Scales every parameter's gradient down, in place, to a norm of at most `clip_val`; None does nothing."""
    if clip_val is None:
        return
    for group in optimizer.param_groups:
        for param in group["params"]:
            if param.grad is not None:
                param.grad.mul_(torch.clamp(clip_val / (param.grad.norm() + SMALL_NUMBER), max=1.0))


def global_norm(tensors: Sequence[Tensor]) -> Tensor:
    """Returns the square root of the sum of squares over all tensors. Scalar."""
    return torch.sqrt(sum((t.square().sum() for t in tensors), start=torch.zeros(())))


def huber_loss(x: Tensor, delta: float = 1.0) -> Tensor:
    """Returns x²/2 where |x| < delta, delta · (|x| − delta/2) elsewhere; shape of `x`."""
    size = x.abs()
    return torch.where(size < delta, 0.5 * x.square(), delta * (size - 0.5 * delta))


def l2_loss(x: Tensor) -> Tensor:
    """Returns Σ x² / 2. Scalar."""
    return 0.5 * x.square().sum()


def atanh(x: Tensor) -> Tensor:
    """Returns the inverse of tanh; shape of `x`."""
    return 0.5 * torch.log(((1 + x).clamp(min=SMALL_NUMBER)) / (1 - x).clamp(min=SMALL_NUMBER))


def explained_variance(y: Tensor, pred: Tensor) -> Tensor:
    """Returns the share of the variance of `y` that `pred` explains.

    Args:
        y: Targets. Float `[B]`.
        pred: Predictions. Float `[B]`.

    Returns:
        1 − Var(y − pred) / Var(y), not below −1; −1 where `y` does not vary. Scalar.
    """
    y_var = y.var(dim=0, correction=0)
    share = (1 - (y - pred).var(dim=0, correction=0) / y_var.clamp(min=torch.finfo(y.dtype).tiny)).clamp(min=-1.0)
    return torch.where(y_var > 0, share, -torch.ones_like(share))


def sequence_mask(
    lengths: Tensor, maxlen: int | None = None, dtype: torch.dtype | None = None, time_major: bool = False
) -> Tensor:
    """Returns a mask of the steps that belong to each sequence.

    Args:
        lengths: Integers `[B]`.
        maxlen: The number T of steps; None takes the longest sequence's.
        dtype: Type of the mask; bool by default.
        time_major: Whether time comes first.

    Returns:
        `[B, T]`, or `[T, B]` where time comes first.
    """
    steps = int(lengths.max()) if maxlen is None else int(maxlen)
    mask = torch.arange(steps, device=lengths.device)[None, :] < lengths[:, None]
    return (mask.t() if time_major else mask).contiguous().to(dtype or torch.bool)  # `view(-1)` is called on it


def one_hot(x: Tensor, space: Any) -> Tensor:
    """Returns one-hot codes of actions or observations.

    Args:
        x: Integers counted from 0, `[B]` for Discrete(A), `[B, N]` for MultiDiscrete.
        space: Their space.

    Returns:
        int64 `[B, A]`; for MultiDiscrete the codes of all components side by side.

    Raises:
        ValueError: If the space is neither.
    """
    space = converted(space)
    if isinstance(space, spaces.Discrete):
        return nn.functional.one_hot(x.long(), int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        sizes = np.asarray(space.nvec).ravel()
        parts = [nn.functional.one_hot(x[..., i].long(), int(n)) for i, n in enumerate(sizes)]
        return torch.cat(parts, dim=-1)
    raise ValueError(f"one_hot: got the space {space}; wanted Discrete or MultiDiscrete.")


def flatten_inputs_to_1d_tensor(inputs: Any, spaces_struct: Any = None, time_axis: bool = False) -> Tensor:
    """Returns nested inputs side by side in one tensor, Discrete and MultiDiscrete leaves as one-hot codes.

    Args:
        inputs: A tensor or a dict or tuple of tensors `[B, …]`; dicts count in the order of their sorted keys.
        spaces_struct: The leaves' spaces in the same structure; None means no leaf is one-hot coded.
        time_axis: Whether tensors are `[B, T, …]`.

    Returns:
        Float `[B, D]`, or `[B, T, D]` with a time axis.
    """
    keep = 2 if time_axis else 1

    def flatten(leaf: Any, space: Any) -> Tensor:
        tensor = torch.as_tensor(leaf)
        tensor = (tensor if space is None else one_hot(tensor, space)).float()
        return tensor.reshape(*tensor.shape[:keep], -1)

    return torch.cat(list(flat_leaves(inputs, spaces_struct, flatten)), dim=-1)


def softmax_cross_entropy_with_logits(logits: Tensor, labels: Tensor) -> Tensor:
    """Returns −Σ labels · log softmax(logits) along the last dimension; `[B]` for logits and labels `[B, A]`."""
    return -(labels * nn.functional.log_softmax(logits, dim=-1)).sum(dim=-1)


def reduce_mean_ignore_inf(x: Tensor, axis: int | None = None) -> Tensor:
    """Returns the mean of the entries above `FLOAT_MIN`, which masks are made of, over all dimensions or an axis."""
    finite = x > FLOAT_MIN
    total = torch.where(finite, x, torch.zeros_like(x))
    if axis is None:
        return total.sum() / finite.sum()
    return total.sum(dim=axis) / finite.sum(dim=axis)


def convert_to_torch_tensor(x: Any, device: torch.device | str | None = None) -> Any:
    """Returns `x` with every number and array in it as a tensor.

    Float64 becomes float32, integers keep their type. Arrays of objects stay as they are. On the CPU a writable array
    shares its memory with the tensor.

    Args:
        x: An array, tensor or number, or a dict, tuple or list of such, nested to any depth.
        device: Where the tensors shall be; None leaves tensors where they are.
    """
    if isinstance(x, Mapping):
        made = {key: convert_to_torch_tensor(value, device) for key, value in x.items()}
        return x._like(made) if hasattr(x, "_like") else made  # a SampleBatch, which stands above this package
    if isinstance(x, tuple):
        parts = [convert_to_torch_tensor(value, device) for value in x]
        return type(x)(*parts) if hasattr(x, "_fields") else tuple(parts)
    if isinstance(x, Tensor):
        return x if device is None else x.to(device)
    if isinstance(x, list) and x and isinstance(x[0], (Mapping, tuple, Tensor, np.ndarray)):
        return [convert_to_torch_tensor(value, device) for value in x]
    if hasattr(x, "max_len") and hasattr(x, "lengths"):  # RepeatedValues, which stands above this package
        values, lengths = (convert_to_torch_tensor(part, device) for part in (x.values, x.lengths))
        return type(x)(values, lengths, x.max_len)
    return _to_tensor(np.asarray(x), device)


def _to_tensor(array: np.ndarray[Any, Any], device: torch.device | str | None) -> Any:
    if array.dtype == object:
        return array
    if array.dtype == np.float64:
        array = array.astype(np.float32)
    elif not array.flags.writeable:
        array = array.copy()
    tensor = torch.from_numpy(array)
    return tensor if device is None else tensor.to(device)


def tensor_of(array: np.ndarray[Any, Any]) -> Tensor:
    """Returns a tensor of an array's type, which shares its memory."""
    return torch.from_numpy(array)


def convert_to_non_torch_type(stats: Any) -> Any:
    """Returns `stats` with tensors without dimension as numbers, others as arrays, through dicts, tuples and lists."""
    if isinstance(stats, Mapping):
        return {key: convert_to_non_torch_type(value) for key, value in stats.items()}
    if isinstance(stats, (tuple, list)):
        parts = [convert_to_non_torch_type(value) for value in stats]
        return type(stats)(*parts) if hasattr(stats, "_fields") else type(stats)(parts)
    if isinstance(stats, Tensor):
        return stats.item() if stats.ndim == 0 else convert_to_numpy(stats)
    return stats


def concat_multi_gpu_td_errors(policy: Any) -> dict[str, Tensor]:
    """Returns the TD errors that the loss kept on each tower, one per row, and their mean.

    Args:
        policy: A policy with `model_gpu_towers`, each with `tower_stats["td_error"]`, or `td_error` as in RLlib 1.6.

    Returns:
        `{"td_error": float [B], "mean_td_error": scalar}`.
    """
    told = [tower.tower_stats.get("td_error", getattr(tower, "td_error", None)) for tower in policy.model_gpu_towers]
    towers = [error.to(policy.device) for error in told if error is not None]
    td_error = torch.cat(towers) if towers else torch.zeros(1)
    policy.td_error = td_error
    return {"td_error": td_error, "mean_td_error": td_error.mean()}


def get_device(config: Mapping[str, Any]) -> torch.device:
    """Returns the device for `config["num_gpus"]`: the first GPU if that is above 0, the CPU otherwise.

    Raises:
        ValueError: If a GPU is asked for and none is visible.
    """
    if not config.get("num_gpus"):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ValueError(
            f"num_gpus is {config['num_gpus']}, but torch sees no GPU: set num_gpus=0, or check the driver."
        )
    return torch.device("cuda:0")


def set_torch_seed(seed: int | None = None) -> None:
    """Seeds torch's global streams on CPU and GPU, and makes cuDNN deterministic; None does nothing."""
    if seed is None:
        return
    torch.manual_seed(seed)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


class Swish(nn.Module):
    """x · sigmoid(β x), β learned."""

    def __init__(self) -> None:
        super().__init__()
        self._beta = nn.Parameter(torch.tensor(1.0))

    def forward(self, input_tensor: Tensor) -> Tensor:
        """Returns the activation of `input_tensor`, elementwise."""
        return input_tensor * torch.sigmoid(self._beta * input_tensor)
