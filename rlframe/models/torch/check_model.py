"""Trying a model once, at construction, so that a wrong shape is named then and not at step 10,000."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import tree
from torch import nn
from torch.overrides import TorchFunctionMode

from rlframe.data.sample_batch import SampleBatch
from rlframe.models.probe import ROWS, require_outputs, require_states, require_values, try_model


def check_model(
    model: Any, obs_space: Any, num_outputs: int | None, *, values: bool = False, several: bool = False
) -> None:
    """Runs the model on two observations and checks what it gives.

    The model is in evaluation mode meanwhile, no gradients are recorded, and PyTorch's and the space's random streams
    are left as they were. A warning says where it computes with parameters that are not its own.

    Args:
        model: A `TorchModelV2`.
        obs_space: Preprocessed observation space; observations are elements of its `original_space`, where it has one.
        num_outputs: Wanted width of the outputs; None takes `model.num_outputs`.
        values: Whether `value_function()` is checked as well.
        several: Whether it may give several values per row, `[B, N]`.

    Raises:
        ValueError: If outputs, states or values have another shape than promised, or are no float tensors.
    """
    wanted = model.num_outputs if num_outputs is None else num_outputs
    parameter = next(iter(model.parameters()), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]), _Seen() as seen:
            states = [_state(initial, device) for initial in model.get_initial_state()]
            seq_lens = torch.ones(ROWS, dtype=torch.int32, device=device) if states else None

            def call(arrays: Any) -> Any:
                inputs = tree.map_structure(lambda array: torch.as_tensor(array, device=device), arrays)
                return model(SampleBatch(inputs), states, seq_lens)

            outputs, new_states = try_model(model, obs_space, call)
            require_outputs(model, outputs, wanted, _no_float_tensor(outputs))
            require_states(model, states, new_states)
            if values:
                result = model.value_function()
                require_values(model, result, is_tensor=isinstance(result, torch.Tensor), several=several)
    finally:
        model.train(was_training)
    own = {id(parameter) for parameter in model.parameters()}
    strange = [parameter for key, parameter in seen.parameters.items() if key not in own and parameter.requires_grad]
    if strange:
        warnings.warn(
            f"{type(model).__name__} computes with {len(strange)} parameters that are not its own, the first of shape "
            f"{tuple(strange[0].shape)}: they will be neither learned nor saved; keep layers as attributes, or in an "
            "nn.ModuleList or nn.ModuleDict, which PyTorch's modules look into, not in a list or an object",
            stacklevel=2,
        )


class _Seen(TorchFunctionMode):
    """Collects the parameters that functions are called with."""

    def __init__(self) -> None:
        super().__init__()
        self.parameters: dict[int, nn.Parameter] = {}

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for leaf in tree.flatten((args, kwargs)):
            if isinstance(leaf, nn.Parameter):
                self.parameters[id(leaf)] = leaf
        return function(*args, **kwargs)


def _state(initial: Any, device: torch.device) -> torch.Tensor:
    """Returns one initial state `[S]` repeated for every row, `[B, S]`."""
    state = torch.as_tensor(initial, device=device)
    return state.expand(ROWS, *state.shape).clone()


def _no_float_tensor(outputs: Any) -> str | None:
    """Returns what `outputs` is, in words, or None where it is a float tensor."""
    if not isinstance(outputs, torch.Tensor):
        return f"a {type(outputs).__name__}"
    return None if outputs.is_floating_point() else f"a {type(outputs).__name__} of {outputs.dtype}"
