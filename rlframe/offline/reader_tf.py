"""A reader's batches as tensors of TensorFlow, for losses that take rows of data beside those that were sampled."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.sample_batch import SampleBatch
from rlframe.utils.errors import DataError


def input_ops(reader: Any) -> dict[str, Any]:
    """Returns the columns of a reader's next batch as tensors.

    Inside a traced function each execution reads the next batch, as eager code does by calling this again. Columns,
    dtypes and shapes of rows are those of the batch that is read first, which is not given out.

    Args:
        reader: An InputReader over batches of one policy.

    Returns:
        Tensors `[B, ...]` by column; those that are no arrays of numbers are left out.

    Raises:
        DataError: If the reader gives batches of several policies.
    """
    import tensorflow as tf

    first = reader.next()
    if not isinstance(first, SampleBatch):
        raise DataError("tf_input_ops: got batches of several policies, wanted those of one")
    columns = {
        name: np.asarray(column)
        for name, column in first.items()
        if isinstance(column, np.ndarray) and not column.dtype.hasobject
    }

    def read() -> list[Any]:
        batch = reader.next()
        return [np.asarray(batch[name], column.dtype) for name, column in columns.items()]

    tensors = tf.numpy_function(read, [], [column.dtype for column in columns.values()])
    for tensor, column in zip(tensors, columns.values(), strict=True):
        tensor.set_shape([None, *column.shape[1:]])
    return dict(zip(columns, tensors, strict=True))
