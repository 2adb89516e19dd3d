"""Trying a model once, at construction, so that a wrong shape is named then and not at step 10,000."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
import tree

from rlframe.models.preprocessors import get_preprocessor

_ROWS = 2


def check_model(model: Any, obs_space: Any, num_outputs: int | None, *, values: bool = False) -> None:
    """Runs the model on two sampled observations and checks what it gives.

    The model is in evaluation mode meanwhile, no gradients are recorded, and PyTorch's and the space's random streams
    are left as they were.

    Args:
        model: A `TorchModelV2`.
        obs_space: Preprocessed observation space; observations are sampled from its `original_space`, where it has one.
        num_outputs: Wanted width of the outputs; None takes `model.num_outputs`.
        values: Whether `value_function()` is checked as well.

    Raises:
        ValueError: If outputs, states or values have another shape than promised, or are no float tensors.
    """
    wanted = model.num_outputs if num_outputs is None else num_outputs
    parameter = next(iter(model.parameters()), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            inputs = _sampled_inputs(model, obs_space, device)
            states = [_state(initial, device) for initial in model.get_initial_state()]
            seq_lens = torch.ones(_ROWS, dtype=torch.int32, device=device) if states else None
            outputs, new_states = model(inputs, states, seq_lens)
            _check_outputs(model, outputs, wanted)
            _check_states(model, states, new_states)
            if values:
                _check_values(model, model.value_function())
    finally:
        model.train(was_training)


def _sampled_inputs(model: Any, obs_space: Any, device: torch.device) -> dict[str, Any]:
    """Returns a batch of sampled observations, and zeros for the further columns the model asks for."""
    rows = _sampled_observations(obs_space)
    inputs: dict[str, Any] = {"obs": tree.map_structure(lambda *leaves: _tensor(np.stack(leaves), device), *rows)}
    for column, requirement in model.view_requirements.items():
        if column not in inputs and requirement.space is not None and not column.startswith("state_"):
            inputs[column] = _column(requirement, device)
    return inputs


def _sampled_observations(obs_space: Any) -> list[Any]:
    """Returns preprocessed observations, sampled from the environment's space where that is known."""
    original = copy.deepcopy(getattr(obs_space, "original_space", None))
    if original is not None:
        preprocessor = get_preprocessor(original)(original)
        if preprocessor.shape == obs_space.shape:
            original.seed(0)
            return [preprocessor.transform(original.sample()) for _ in range(_ROWS)]
    # No preprocessor, or not the usual one: samples of the space itself must do.
    given = copy.deepcopy(obs_space)
    given.seed(0)
    return [given.sample() for _ in range(_ROWS)]


def _column(requirement: Any, device: torch.device) -> Any:
    space = copy.deepcopy(requirement.space)
    space.seed(0)
    shift = requirement.shift_arr if hasattr(requirement, "shift_arr") else np.zeros(1)
    several = (len(shift),) if len(shift) > 1 else ()

    def zeros(leaf: Any) -> torch.Tensor:
        array = np.asarray(leaf)
        return _tensor(np.zeros((_ROWS, *several, *array.shape), array.dtype), device)

    return tree.map_structure(zeros, space.sample())


def _tensor(array: Any, device: torch.device) -> torch.Tensor:
    array = np.asarray(array)
    return torch.as_tensor(array.astype(np.float32) if array.dtype == np.float64 else array, device=device)


def _state(initial: Any, device: torch.device) -> torch.Tensor:
    """Returns one initial state `[S]` repeated for every row, `[B, S]`."""
    state = torch.as_tensor(initial, device=device)
    return state.expand(_ROWS, *state.shape).clone()


def _check_outputs(model: Any, outputs: Any, wanted: int) -> None:
    who = f"{type(model).__name__}.forward()"
    if not isinstance(outputs, torch.Tensor) or not outputs.is_floating_point():
        got = f"a {type(outputs).__name__}" + (f" of {outputs.dtype}" if isinstance(outputs, torch.Tensor) else "")
        raise ValueError(f"{who} must return its outputs as a float tensor [B, {wanted}]; got {got}.")
    if tuple(outputs.shape) != (_ROWS, wanted):
        raise ValueError(
            f"{who} returned outputs of shape {list(outputs.shape)} for {_ROWS} observations; wanted "
            f"[{_ROWS}, {wanted}] (num_outputs={wanted}). Give the model's last layer {wanted} units."
        )


def _check_states(model: Any, states: list[torch.Tensor], new_states: list[Any]) -> None:
    who = f"{type(model).__name__}.forward()"
    if len(states) != len(new_states):
        raise ValueError(f"{who} returned {len(new_states)} state(s), but get_initial_state() promises {len(states)}.")
    for index, (before, after) in enumerate(zip(states, new_states, strict=True)):
        if tuple(before.shape) != tuple(after.shape):
            raise ValueError(
                f"{who} returned state {index} of shape {list(after.shape)}; get_initial_state() promises "
                f"{list(before.shape)} (batch first)."
            )


def _check_values(model: Any, values: Any) -> None:
    who = f"{type(model).__name__}.value_function()"
    if not isinstance(values, torch.Tensor) or tuple(values.shape) != (_ROWS,):
        got = list(values.shape) if isinstance(values, torch.Tensor) else type(values).__name__
        raise ValueError(
            f"{who} must return one value per row, shape [{_ROWS}] here; got {got}. Squeeze the last dimension."
        )
