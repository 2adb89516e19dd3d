"""Torch state as nested dicts of arrays and numbers, and back: what checkpoints hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rlframe.models.rllib_names import fitting_weights


def to_arrays(tensors: Mapping[str, Tensor]) -> dict[str, NDArray[Any]]:
    """Returns copies of named tensors as NumPy arrays."""
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in tensors.items()}


def load_weights(model: nn.Module, weights: Mapping[str, Any], *, owner: str) -> None:
    """Copies named arrays into a model.

    Args:
        model: The model to fill.
        weights: `{parameter or buffer name: array}`, with the names of `model.state_dict()` or those of RLlib 1.x.
        owner: Whose weights they are, for the error message.

    Raises:
        ValueError: If names or shapes differ; the model is left as it was.
    """
    wanted = model.state_dict()
    weights = fitting_weights({name: tuple(tensor.shape) for name, tensor in wanted.items()}, weights, owner=owner)
    with torch.no_grad():
        for name, tensor in wanted.items():
            tensor.copy_(torch.from_numpy(_writable(np.asarray(weights[name]))))


def _leaf_out(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy().copy()
    if isinstance(value, Mapping):
        return {str(key): _leaf_out(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_leaf_out(item) for item in value]
    return value


def optimizer_to_state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Returns an optimiser's state by the state convention: nested dicts with text keys."""
    state = optimizer.state_dict()
    return {"state": _leaf_out(state["state"]), "param_groups": _leaf_out(state["param_groups"])}


def _leaf_in(saved: Any, like: Any) -> Any:
    if isinstance(saved, np.ndarray):
        return torch.from_numpy(saved.copy())
    if isinstance(like, tuple) and isinstance(saved, list):
        return tuple(saved)
    return saved


def state_to_optimizer(optimizer: torch.optim.Optimizer, saved: Mapping[str, Any]) -> None:
    """Puts back what `optimizer_to_state` returned.

    Raises:
        ValueError: If the optimiser has other parameter groups than the saved one.
    """
    current = optimizer.state_dict()
    groups = saved["param_groups"]
    if len(groups) != len(current["param_groups"]):
        raise ValueError(f"optimiser state has {len(groups)} parameter groups, wanted {len(current['param_groups'])}")
    merged = [
        {key: _leaf_in(group.get(key, like), like) for key, like in mine.items()}
        for group, mine in zip(groups, current["param_groups"], strict=True)
    ]
    state = {
        int(index): {key: _leaf_in(value, None) for key, value in entry.items()}
        for index, entry in saved["state"].items()
    }
    optimizer.load_state_dict({"state": state, "param_groups": merged})


def _writable(array: NDArray[Any]) -> NDArray[Any]:
    """Returns the array, or a copy of one from the object store, which is read-only: torch warns of such."""
    return array if array.flags.writeable else array.copy()
