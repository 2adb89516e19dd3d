"""What RLlib 1.0 to 1.13 had and 1.9 had not, and that nothing here needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rlframe.data.columns import NEXT_OBS, UNROLL_ID
from rlframe.data.sample_batch import MultiAgentBatch
from rlframe.offline.json_format import batch_of_row
from rlframe.offline.preparing import PolicyRows
from rlframe.utils.deprecation import deprecation_warning
from rlframe.utils.flat_inputs import flat_leaves
from rlframe.utils.numpy import one_hot
from rlframe.utils.test_utils import check

T = TypeVar("T")


def without_next_obs(policy: Any, sample_batch: Any, other_agent_batches: Any = None, episode: Any = None) -> Any:
    """Postprocesses a trajectory for V-trace: takes the next observations out, which it does not read."""
    del policy, other_agent_batches, episode
    sample_batch.pop(NEXT_OBS, None)
    return sample_batch


def validate_buffer_config(config: dict[str, Any]) -> None:
    """Does nothing: a trainer's config is checked, and old names of keys are the new ones, when `validate_config` runs.

    Args:
        config: The trainer's config.
    """


def check_same_batch(batch1: Any, batch2: Any) -> None:
    """Checks that two batches are of one kind and hold the same columns, nearly; unroll ids only where both have one.

    Raises:
        AssertionError: If not, with what differs.
    """
    assert type(batch1) is type(batch2), f"Got a {type(batch1).__name__} and a {type(batch2).__name__}."
    if isinstance(batch1, MultiAgentBatch):
        assert batch1.count == batch2.count, f"Got {batch1.count} and {batch2.count} env steps."
    parts = [batch.policy_batches if isinstance(batch, MultiAgentBatch) else {"": batch} for batch in (batch1, batch2)]
    columns = [{policy: dict(part) for policy, part in given.items()} for given in parts]
    for policy in columns[0].keys() & columns[1].keys():
        if not all(UNROLL_ID in given[policy] for given in columns):
            for given in columns:
                given[policy].pop(UNROLL_ID, None)
    check(columns[0], columns[1])


def moved_function(func: Callable[..., T]) -> Callable[..., T]:
    """Returns a function, with a warning that names the module it is found in now."""
    deprecation_warning(f"import {func.__name__}", f"{func.__module__}.{func.__name__}", error=False)
    return func


def from_json_data(json_data: Mapping[str, Any], worker: Any = None) -> Any:
    """Returns the batch that one line of a data file describes, its columns unpacked.

    Args:
        json_data: What `json.loads` made of the line.
        worker: Its policies say how nested observations and actions are stored; without one they stay as they are.

    Returns:
        A SampleBatch or a MultiAgentBatch.

    Raises:
        DataError: If it is neither.
    """
    batch = batch_of_row(json_data)
    return batch if worker is None else PolicyRows(worker.io_context)(batch)


def flatten_inputs_to_1d_tensor(inputs: Any, spaces_struct: Any = None, time_axis: bool = False) -> NDArray[np.float32]:
    """Returns nested arrays side by side in one, Discrete and MultiDiscrete leaves as one-hot codes.

    Args:
        inputs: An array or a dict or tuple of arrays `[B, …]`; dicts count in the order of their sorted keys.
        spaces_struct: The leaves' spaces in the same structure; None means no leaf is one-hot coded.
        time_axis: Whether arrays are `[B, T, …]`.

    Returns:
        Float32 `[B, D]`, or `[B, T, D]` with a time axis.
    """
    keep = 2 if time_axis else 1

    def flatten(leaf: Any, space: Any) -> NDArray[np.float32]:
        array = np.asarray(leaf)
        if isinstance(space, spaces.Discrete):
            array = one_hot(array, int(space.n))
        elif isinstance(space, spaces.MultiDiscrete):
            parts = [one_hot(array[..., i], int(n)) for i, n in enumerate(space.nvec.ravel())]
            array = np.concatenate(parts, axis=-1)
        return array.astype(np.float32).reshape(*array.shape[:keep], math.prod(array.shape[keep:]))

    return np.concatenate(list(flat_leaves(inputs, spaces_struct, flatten)), axis=-1)
