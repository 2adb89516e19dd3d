"""Trying a model once: the inputs for it and the complaints about what it gives, whatever the framework."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import tree
from gymnasium import spaces

from rlframe.data.columns import ACTIONS
from rlframe.models.past_views import move_obs_window, previous_step_views
from rlframe.models.preprocessors import get_preprocessor, without_preprocessing
from rlframe.utils.spaces.space_maps import map_space
from rlframe.utils.spaces.space_utils import flatten_to_single_ndarray, get_base_struct_from_space

#: Rows of the batch that a model is tried with.
ROWS = 2


def probe_inputs(model: Any, obs_space: Any) -> dict[str, Any]:
    """Returns a batch of observations, and zeros for the further columns the model asks for, as arrays.

    What is a `Box` is zeros, as in RLlib's first run of a policy: bounds are often wider than what the environment
    shows, and models look values up in tables (embeddings).
    """
    inputs: dict[str, Any] = {"obs": tree.map_structure(lambda *leaves: np.stack(leaves), *_observations(obs_space))}
    for column, requirement in model.view_requirements.items():
        if column not in inputs and requirement.space is not None and not column.startswith("state_"):
            inputs[column] = _zero_column(requirement)
    return tree.map_structure(_single, inputs)  # type: ignore[no-any-return]  # tree is untyped


def try_model(model: Any, obs_space: Any, call: Callable[[dict[str, Any]], Any]) -> Any:
    """Returns `call(inputs)`, with the columns that the model asks for.

    A model that reads the last action or reward without a view requirement gets one: RLlib has these in `input_dict`.
    One that declares several steps as `obs` is tried, and called from then on, with them.

    Args:
        model: A model of either framework.
        obs_space: Preprocessed observation space.
        call: Calls the model with arrays, see `probe_inputs`.
    """
    move_obs_window(model)
    while True:
        try:
            return call(probe_inputs(model, obs_space))
        except KeyError as error:
            if not declare_past(model, error):
                raise


def declare_past(model: Any, error: KeyError) -> bool:
    """Gives a model the view of the last action or reward, where an error says that it has read that in vain.

    Args:
        model: A model of either framework; its view requirements are added to.
        error: Of a forward pass.

    Returns:
        Whether there is such a view now that was not there.
    """
    said = str(error.args[0]) if error.args else ""
    for column, view in previous_step_views(True, True, model.action_space).items():
        missed = said == column or said.startswith(f"the batch has no column {column!r}")
        if missed and column not in model.view_requirements:
            model.view_requirements[column] = view
            return True
    return False


def _single(array: Any) -> Any:
    """Returns the array, float64 as float32: models compute in single precision."""
    array = np.asarray(array)
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _observations(obs_space: Any) -> list[Any]:
    """Returns preprocessed observations, elements of the environment's space where that is known."""
    original = copy.deepcopy(getattr(obs_space, "original_space", None))
    if original is not None:
        raw = getattr(obs_space, "raw_leaves", False)
        preprocessor = without_preprocessing(original) if raw else get_preprocessor(original)(original)
        if preprocessor.shape == obs_space.shape:
            original.seed(0)
            return [preprocessor.transform(_element(original)) for _ in range(ROWS)]
    # No preprocessor, or not the usual one: elements of the space itself must do.
    given = copy.deepcopy(obs_space)
    given.seed(0)
    return [_element(given) for _ in range(ROWS)]


def _element(space: Any) -> Any:
    """Returns an element of a space."""
    struct = get_base_struct_from_space(space)
    return map_space(lambda _, leaf: _inside(leaf), struct, struct)


def _inside(leaf: Any) -> Any:
    """Returns zeros where a `Box` holds them, else what is next to zero in it; samples of other spaces."""
    if not isinstance(leaf, spaces.Box):
        return leaf.sample()
    return np.clip(np.zeros(leaf.shape, leaf.dtype), leaf.low, leaf.high)


def _zero_column(requirement: Any) -> Any:
    space = copy.deepcopy(requirement.space)
    space.seed(0)
    shift = requirement.shift_arr if hasattr(requirement, "shift_arr") else np.zeros(1)
    several = (len(shift),) if len(shift) > 1 else ()

    def zeros(leaf: Any) -> Any:
        array = np.asarray(leaf)
        return np.zeros((ROWS, *several, *array.shape), array.dtype)

    made = tree.map_structure(zeros, _element(space))
    # Past actions come as they are stored: the parts of nested ones side by side.
    return flatten_to_single_ndarray(made, 1 + len(several)) if requirement.data_col == ACTIONS else made


def require_outputs(model: Any, outputs: Any, wanted: Any, instead: str | None) -> None:
    """Raises ValueError unless a forward pass gave a float tensor `[ROWS, wanted]`, or `[ROWS, *wanted]`.

    Args:
        model: The model.
        outputs: What it gave.
        wanted: Promised width, or a shape, which may come flattened.
        instead: What `outputs` is where it is no float tensor, in words; else None.
    """
    who = f"{type(model).__name__}.forward()"
    if instead is not None:
        raise ValueError(f"{who} must return its outputs as a float tensor [B, {wanted}]; got {instead}.")
    if tuple(outputs.shape) not in {(ROWS, np.prod(wanted)), (ROWS, *np.ravel(wanted))}:
        values = tuple(outputs.shape) == (ROWS, getattr(getattr(model, "action_space", None), "n", None))
        instead = " If these are the actions' Q-values, set hiddens=[] and dueling=False." if values else ""
        raise ValueError(
            f"{who} returned outputs of shape {list(outputs.shape)} for {ROWS} observations; wanted "
            f"[{ROWS}, {wanted}] (num_outputs={wanted}). Give the model's last layer {wanted} units.{instead}"
        )


def require_states(model: Any, states: list[Any], new_states: list[Any]) -> None:
    """Raises ValueError unless a forward pass gave as many states as it got, each of the same shape."""
    who = f"{type(model).__name__}.forward()"
    if len(states) != len(new_states):
        raise ValueError(f"{who} returned {len(new_states)} state(s), but get_initial_state() promises {len(states)}.")
    for index, (before, after) in enumerate(zip(states, new_states, strict=True)):
        if tuple(before.shape) != tuple(after.shape):
            raise ValueError(
                f"{who} returned state {index} of shape {list(after.shape)}; get_initial_state() promises "
                f"{list(before.shape)} (batch first)."
            )


def require_values(model: Any, values: Any, *, is_tensor: bool, several: bool = False) -> None:
    """Raises ValueError unless `values` is a tensor `[ROWS]`; `[ROWS, N]` with N > 1 is one, too, with `several`."""
    if is_tensor and several and tuple(values.shape[:-1]) == (ROWS,) and values.shape[-1] > 1:
        return
    if not is_tensor or tuple(values.shape) != (ROWS,):
        got = list(values.shape) if is_tensor else type(values).__name__
        raise ValueError(
            f"{type(model).__name__}.value_function() must return one value per row, shape [{ROWS}] here; got {got}. "
            f"Squeeze the last dimension."
        )
