"""Why a loss is not a number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.models.gaussian import DiagGaussian
from rlframe.utils.errors import NonFiniteError


def explain_nonfinite(index: int, loss: float, policy: Any, samples: Mapping[str, Any]) -> NonFiniteError:
    """Returns an error that names what was first to be NaN or infinite: a weight, else a column, else the loss.

    Args:
        index: Number of the loss.
        loss: Its value.
        policy: The policy that was about to learn; its weights are looked at.
        samples: The training batch, in arrays.
    """
    step = f"at env step {policy.global_timestep}"
    for name, weights in policy.get_weights().items():
        if weights.dtype.kind == "f" and not np.isfinite(weights).all():
            return NonFiniteError(
                f"the weights {name} became NaN or infinite in an earlier update ({step}); lower lr, or set grad_clip"
                f"{_deviations_to_free(policy)}"
            )
    for name, column in samples.items():
        array = column if isinstance(column, np.ndarray) else None
        if array is not None and array.dtype.kind == "f" and not np.isfinite(array).all():
            row = int(np.argwhere(~np.isfinite(array))[0][0])
            return NonFiniteError(
                f"column {name!r} of the training batch has {array[row]!r} in row {row} ({step}); "
                "a postprocessing function, a callback or the input data put it there"
            )
    return NonFiniteError(
        f"loss number {index} is {loss} though weights and batch are finite ({step}); "
        "a term of the loss overflows or divides by zero: lower lr, set grad_clip, or look at the loss function"
        f"{_deviations_to_free(policy)}"
    )


def _deviations_to_free(policy: Any) -> str:
    """Returns what else may help where standard deviations come from the network: they can swing by orders."""
    if policy.numpy_dist is not DiagGaussian or policy.config.get("model", {}).get("free_log_std"):
        return ""
    if "free_log_std.log_std" in policy.get_weights():
        return ""
    return "; with Gaussian actions model.free_log_std=True often cures it: deviations free of the state"
