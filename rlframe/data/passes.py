"""Passes over a train batch in minibatches: of rows, or of whole sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from rlframe.data.columns import SEQ_LENS
from rlframe.data.rows import as_seq_lens
from rlframe.data.sample_batch import SampleBatch
from rlframe.data.sequences import IntArray, padded_sequences


def pass_of_minibatches(
    rows: SampleBatch, size: int, rng: Callable[[], np.random.Generator] | None, *, drop_remainder: bool = False
) -> Iterator[SampleBatch]:
    """Yields the minibatches of one pass over a batch.

    Args:
        rows: The batch. Of one that is cut into sequences whole ones are taken, and padded.
        size: Rows per minibatch; 0 means all.
        rng: Returns the random stream of the order, called only where there is an order to draw; None keeps the order.
        drop_remainder: Leave out the last minibatch if it is short, unless it is the only one.
    """
    if not size or size >= rows.count:
        yield rows
        return
    units = len(rows[SEQ_LENS]) if SEQ_LENS in rows else rows.count
    order = np.arange(units) if rng is None else rng().permutation(units)
    if SEQ_LENS in rows:
        yield from sequence_minibatches(rows, size, order, drop_remainder=drop_remainder)
        return
    last = units - units % size if drop_remainder else units
    for start in range(0, last, size):
        yield rows.take(order[start : start + size])


def sequence_minibatches(
    batch: SampleBatch, size: int, order: IntArray, *, drop_remainder: bool = False
) -> Iterator[SampleBatch]:
    """Yields minibatches of whole sequences, padded.

    Args:
        batch: Rows cut into sequences, not padded.
        size: Rows per minibatch, padding included, as in RLlib; one ends with the sequence that reaches as many.
        order: Numbers of the sequences in the order in which they are taken.
        drop_remainder: Leave out the last minibatch if it has fewer rows than `size`, unless it is the only one.
    """
    count = -(-size // int(as_seq_lens(batch[SEQ_LENS]).max()))
    for begin in range(0, len(order), count):
        chosen = order[begin : begin + count]
        if drop_remainder and begin > 0 and len(chosen) < count:
            return
        yield padded_sequences(batch, chosen=chosen)
