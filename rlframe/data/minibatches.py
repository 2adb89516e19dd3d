"""RLlib's minibatch loops, for programs that write their learner steps themselves."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import SEQ_LENS
from rlframe.data.sample_batch import DEFAULT_POLICY_ID, MultiAgentBatch, SampleBatch
from rlframe.utils.metrics.learner_info import LearnerInfoBuilder


def averaged(kv: Mapping[str, Sequence[Any]], axis: int | None = None) -> dict[str, Any]:
    """Returns the mean of each entry's values, which are numbers or arrays.

    Args:
        kv: Values by name.
        axis: Axis of the mean; None for one number.
    """
    return {name: np.mean(values, axis=axis) for name, values in kv.items()}


def standardized(array: NDArray[Any]) -> NDArray[Any]:
    """Returns an array less its mean, divided by its standard deviation, or by 1e-4 where that is smaller."""
    scaled: NDArray[Any] = (array - array.mean()) / max(1e-4, array.std())
    return scaled


def minibatches(samples: SampleBatch, sgd_minibatch_size: int, shuffle: bool = True) -> Iterator[SampleBatch]:
    """Yields the rows of a batch in minibatches; the last one may have fewer.

    Rows are put into a random order first, in place, by NumPy's global generator; not those of recurrent policies.

    Args:
        samples: The batch. One that is cut into sequences gives whole sequences.
        sgd_minibatch_size: Rows of each minibatch; of sequences, at most as many, or one sequence that is longer. 0
            gives the batch itself.
        shuffle: Whether the minibatches come in random order, by Python's global generator.

    Raises:
        ValueError: If it is a MultiAgentBatch.
    """
    if not sgd_minibatch_size:
        yield samples
        return
    if isinstance(samples, MultiAgentBatch):
        raise ValueError("Got a MultiAgentBatch; wanted the SampleBatch of one policy: policy_batches[policy_id].")
    if SEQ_LENS not in samples and "state_in_0" not in samples and "state_out_0" not in samples:
        samples.shuffle()
    pieces = list(slice_indices(samples, sgd_minibatch_size))
    if shuffle:
        random.shuffle(pieces)
    for start, end in pieces:
        yield samples.slice(start, end)


def slice_indices(samples: SampleBatch, size: int) -> Iterator[tuple[int, int]]:
    """Yields (start, end) of consecutive pieces of at most `size` rows; of a batch in sequences, whole sequences."""
    seq_lens = samples.get(SEQ_LENS)
    if seq_lens is None or len(seq_lens) == 0:
        yield from ((start, min(start + size, samples.count)) for start in range(0, samples.count, size))
        return
    start = end = 0
    for length in np.asarray(seq_lens).tolist():
        if end > start and end + length - start > size:
            yield start, end
            start = end
        end += length
    yield start, end


def do_minibatch_sgd(
    samples: SampleBatch | MultiAgentBatch,
    policies: Mapping[str, Any],
    local_worker: Any,
    num_sgd_iter: int,
    sgd_minibatch_size: int,
    standardize_fields: Sequence[str],
) -> dict[str, Any]:
    """Learns from a batch in several passes of minibatches, policy by policy.

    Args:
        samples: The batch; its `standardize_fields` are changed in place.
        policies: The policies that learn, by id.
        local_worker: The worker that has them.
        num_sgd_iter: Passes over the batch.
        sgd_minibatch_size: Rows of each minibatch; 0 for all.
        standardize_fields: Columns that get mean 0 and standard deviation 1 first, e.g. `["advantages"]`.

    Returns:
        The learner's info by policy id: means over all steps.
    """
    batches = samples.as_multi_agent().policy_batches
    builder = LearnerInfoBuilder(num_devices=1)
    for policy_id in policies:
        if policy_id not in batches:
            continue
        batch = batches[policy_id]
        for field in standardize_fields:
            batch[field] = standardized(batch[field])
        for _ in range(num_sgd_iter):
            for part in minibatches(batch, sgd_minibatch_size):
                info = local_worker.learn_on_batch(MultiAgentBatch({policy_id: part}, part.count))
                builder.add_learn_on_batch_results(info[policy_id], policy_id)
    return builder.finalize()


__all__ = ["DEFAULT_POLICY_ID", "averaged", "do_minibatch_sgd", "minibatches", "slice_indices", "standardized"]
