"""A TensorFlow policy's network, and the distribution or functions behind it, as something to trace."""

from __future__ import annotations

from typing import Any

from rlframe.data.columns import SEQ_LENS
from rlframe.data.sample_batch import SampleBatch
from rlframe.serving.export.program import TracedNetwork
from rlframe.serving.export.traced import acted, columns_taken
from rlframe.utils.quiet_tf import tf


def network_of(policy: Any) -> TracedNetwork:
    """Returns what is called with the columns of `columns_taken`, and gives what `acted` does."""
    names = columns_taken(policy)

    def call(*columns: Any) -> list[Any]:
        batch = SampleBatch.from_columns(dict(zip(names, columns, strict=True)))
        batch.set_training(False)
        if policy.is_recurrent():  # sequences of one step; as many as there are rows
            batch[SEQ_LENS] = tf.ones([tf.shape(columns[0])[0]], tf.int32)
        return acted(policy, batch)

    return TracedNetwork("tf", call, list(policy.model.variables()))
