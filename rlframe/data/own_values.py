"""Values by a program's own `_value`, in the form that its version of RLlib called it in."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from rlframe.data.columns import ACTIONS, OBS, REWARDS, STATE_IN_PREFIX
from rlframe.data.nested import map_nested
from rlframe.data.sample_batch import SampleBatch

_BY_PLACE_OR_NAME = inspect.Parameter.POSITIONAL_OR_KEYWORD


def value_after(single: Callable[..., Any], inputs: SampleBatch, trajectory: SampleBatch) -> float:
    """Returns what a program's `_value` says of the observation that followed a trajectory.

    Args:
        single: The method. Given columns by name, or, as up to RLlib 1.0, one row in its order: the observation, the
            action and the reward before it, and states, without a batch's axis.
        inputs: What a model is given for that observation, one row.
        trajectory: The rows before it.
    """
    args, kwargs = _as_declared(single, inputs, trajectory)
    return float(np.asarray(single(*args, **kwargs)).reshape(-1)[0])


def _as_declared(single: Callable[..., Any], inputs: SampleBatch, trajectory: SampleBatch) -> tuple[list[Any], Any]:
    signature = inspect.signature(single)
    try:
        signature.bind(**inputs)
    except TypeError:
        names = [f"{STATE_IN_PREFIX}{index}" for index in range(len(inputs))]
        states = [inputs[name][0] for name in names if name in inputs]
        row = [map_nested(lambda leaf: leaf[0], inputs[OBS]), trajectory[ACTIONS][-1], trajectory[REWARDS][-1], *states]
        kinds = [parameter.kind for parameter in signature.parameters.values()]
        by_place = sum(kind in (inspect.Parameter.POSITIONAL_ONLY, _BY_PLACE_OR_NAME) for kind in kinds)
        return (row if inspect.Parameter.VAR_POSITIONAL in kinds else row[:by_place]), {}
    return [], inputs
