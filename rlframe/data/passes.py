"""Passes over a train batch: its minibatches, of rows or of whole sequences, and what their learner steps report."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

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


def merge_learner_infos(infos: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns one learner info for several minibatches (or devices).

    Numbers become their mean, NaN left out; those named `min_*` and `max_*` become the smallest and the largest;
    `td_error` arrays are joined; dicts are merged likewise; of anything else, the last is kept.

    Args:
        infos: What `policy.learn_on_batch()` returned, in order.
    """
    if len(infos) == 1:
        return dict(infos[0])
    names = list(dict.fromkeys(name for info in infos for name in info))
    own = [dict(info) for info in infos]  # without what a LearnerInfo finds deeper
    return {name: _merge(name, [info[name] for info in own if name in info]) for name in names}


def _merge(name: str, values: list[Any]) -> Any:
    first = values[0]
    if isinstance(first, dict):
        return merge_learner_infos([value for value in values if isinstance(value, dict)])
    if name == "td_error":
        return np.concatenate([np.atleast_1d(value) for value in values])
    try:
        numbers = [float(value) for value in values]
    except (TypeError, ValueError):  # None, text, or an array of more than one element
        return values[-1]
    numbers = [number for number in numbers if not math.isnan(number)]
    if not numbers:
        return math.nan
    if name.startswith("min_"):
        return min(numbers)
    if name.startswith("max_"):
        return max(numbers)
    return sum(numbers) / len(numbers)
