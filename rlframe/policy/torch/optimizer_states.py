"""The state of torch optimisers as nested dicts of arrays and numbers, and back: what checkpoints hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rlframe.policy.torch.flat import FlatAdam, FlatParameters


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


def _named(flat: FlatParameters, buffer: Tensor, names: Mapping[int, str]) -> dict[str, NDArray[Any]]:
    """Returns copies of the members' parts of a buffer [P], by the names that `names` has for their identities."""
    sizes = [p.numel() for p in flat.members()]
    return {
        names[id(p)]: part.detach().cpu().numpy().reshape(p.shape).copy()
        for p, part in zip(flat.members(), torch.split(buffer, sizes), strict=True)
    }


def _gathered(flat: FlatParameters, arrays: Mapping[str, Any], names: Mapping[int, str]) -> Tensor:
    """Returns the buffer [P] that `_named` made `arrays` of.

    Raises:
        ValueError: If an array is missing, or has another shape than its parameter.
    """
    parts = []
    for p in flat.members():
        array = np.asarray(arrays.get(names[id(p)], ()))
        if array.shape != tuple(p.shape):
            raise ValueError(f"optimiser state of {names[id(p)]} is {array.shape}, wanted {tuple(p.shape)}")
        # A copy: arrays from the object store are read-only, which torch warns of.
        parts.append(torch.tensor(array, dtype=p.dtype, device=p.device).reshape(-1))
    return torch.cat(parts)


def adam_to_state(optimizer: FlatAdam, flat: FlatParameters, names: Mapping[int, str]) -> dict[str, Any]:
    """Returns Adam's state by parameter names, the form that the policies of all frameworks save and take."""
    state = optimizer.state.get(flat.param) or {}
    moments = {key: _named(flat, state[key], names) for key in ("exp_avg", "exp_avg_sq") if key in state}
    lr = float(optimizer.param_groups[0]["lr"])
    return {"kind": "adam", "lr": lr, "step": int(state["step"]) if state else 0, **moments}


def state_to_adam(
    optimizer: FlatAdam, flat: FlatParameters, names: Mapping[int, str], saved: Mapping[str, Any]
) -> None:
    """Puts back what `adam_to_state`, of this framework or another, returned.

    Raises:
        ValueError: If the moments do not fit the parameters; the optimiser is left as it was.
    """
    if not saved["step"]:
        optimizer.param_groups[0]["lr"] = float(saved["lr"])
        optimizer.state.pop(flat.param, None)
        return
    moments = {key: _gathered(flat, saved[key], names) for key in ("exp_avg", "exp_avg_sq")}
    optimizer.param_groups[0]["lr"] = float(saved["lr"])
    optimizer.state[flat.param] = {"step": torch.tensor(float(saved["step"]), device=flat.param.device), **moments}


def _names_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[int, str] | None:
    """Returns the names of a model's parameters behind the flat buffer of an optimiser; None where it has none."""
    if not isinstance(optimizer, FlatAdam):
        return None
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return names if all(id(member) in names for member in optimizer.flat.members()) else None


def optimizer_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Returns an optimiser's state by the state convention, by the names of a model's parameters where it can be."""
    names = _names_of(model, optimizer)
    if names is None:
        return optimizer_to_state(optimizer)
    assert isinstance(optimizer, FlatAdam)
    return adam_to_state(optimizer, optimizer.flat, names)


def load_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, saved: Mapping[str, Any]) -> None:
    """Takes what `optimizer_state` returned."""
    if saved.get("kind") == "adam" and _names_of(model, optimizer) is not None:
        assert isinstance(optimizer, FlatAdam)
        state_to_adam(optimizer, optimizer.flat, _names_of(model, optimizer) or {}, saved)
    else:
        state_to_optimizer(optimizer, saved)
