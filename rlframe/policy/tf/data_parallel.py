"""One learner step on several devices: each computes the loss of a share of the rows; inside a trace."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypeAlias

from rlframe.data.column_dict import is_per_sequence
from rlframe.data.columns import SEQ_LENS, TRAJECTORY_ENDS
from rlframe.data.sample_batch import SampleBatch
from rlframe.utils.quiet_tf import tf

Tensor: TypeAlias = Any


def split_batch(
    batch: SampleBatch, count: int, counted: Callable[[SampleBatch], Tensor]
) -> list[tuple[SampleBatch, Tensor]]:
    """Returns `count` shares of a batch of tensors with their parts of the rows that count, scalars.

    Where there are fewer rows (or sequences) than shares, some hold the first row once more, and weigh nothing.

    Args:
        batch: Rows, or padded sequences, of which each share gets whole ones. Where it has `trajectory_ends`, a share
            ends where a trajectory does: what is computed along trajectories is then not cut.
        count: Number of shares.
        counted: Returns which rows of a batch count, bool `[B]`, or None for all.
    """
    lens = batch.get(SEQ_LENS)
    first = tf.nest.flatten(next(value for key, value in batch.items() if not is_per_sequence(key)))[0]
    rows = tf.shape(first)[0]
    units = rows if lens is None else tf.shape(lens)[0]
    length = rows // tf.maximum(units, 1)
    mask = counted(batch)
    total = tf.maximum(tf.cast(rows if mask is None else tf.math.count_nonzero(mask), tf.float32), 1.0)
    made = []
    for start, stop in pairwise(_cuts(batch, units, length, count)):
        empty = stop <= start
        begin = tf.where(empty, 0, start)
        part = _slice(batch, begin, tf.where(empty, 1, stop), length)
        mask = counted(part)
        weight = tf.cast((stop - start) * length if mask is None else tf.math.count_nonzero(mask), tf.float32)
        made.append((part, tf.where(empty, 0.0, weight / total)))
    return made


def _cuts(batch: SampleBatch, units: Tensor, length: Tensor, count: int) -> list[Tensor]:
    """Returns where shares begin and end, in rows or sequences."""
    wanted = [units * index // count for index in range(count + 1)]
    ends = batch.get(TRAJECTORY_ENDS)
    if ends is None:
        return wanted
    flags = ends if SEQ_LENS not in batch else tf.reduce_any(tf.reshape(ends, [units, length]), axis=1)
    # The last row counts as an end, so that there is one.
    flags = tf.concat([flags[:-1], [True]], axis=0)
    allowed = tf.cast(tf.where(flags)[:, 0], tf.int32) + 1
    snapped = [tf.gather(allowed, tf.argmin(tf.abs(allowed - cut))) for cut in wanted[1:-1]]
    return [wanted[0], *snapped, wanted[-1]]


def _slice(batch: SampleBatch, start: Tensor, stop: Tensor, length: Tensor) -> SampleBatch:
    """Returns the units `[start, stop)` of a batch, each of which has `length` rows."""

    def cut(key: str, value: Any) -> Any:
        step = 1 if is_per_sequence(key) else length
        return tf.nest.map_structure(lambda leaf: leaf[start * step : stop * step], value)

    return batch._like({key: cut(key, value) for key, value in batch.items()})
