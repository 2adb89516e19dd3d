"""The weights of torch models as named arrays, and back."""

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


def _writable(array: NDArray[Any]) -> NDArray[Any]:
    """Returns the array, or a copy of one from the object store, which is read-only: torch warns of such."""
    return array if array.flags.writeable else array.copy()
