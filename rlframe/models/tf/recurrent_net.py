"""Recurrent TensorFlow models: the base of the user's own, and the LSTM behind any other model."""

from __future__ import annotations

from typing import Any

from rlframe.models.memory_models import LSTMBehind, SequenceModel
from rlframe.models.tf.fcnet import MemoryHeads
from rlframe.models.tf.layer_owner import TFLayerOwner
from rlframe.models.tf.tf_modelv2 import TFModelV2
from rlframe.utils.quiet_tf import tf


class RecurrentNetwork(SequenceModel, TFModelV2):
    """Gives its subclass inputs in the shape of sequences, see `SequenceModel`."""

    def _as_sequences(self, rows: Any, seq_lens: Any) -> Any:
        return as_sequences(rows, seq_lens)


def as_sequences(flat: Any, seq_lens: Any) -> Any:
    """Returns padded rows `[num_seqs · T, D]` as `[num_seqs, T, D]`; there are as many sequences as lengths."""
    lengths = tf.convert_to_tensor(seq_lens)
    _check_rows(flat.shape[0], lengths.shape[0])
    rows, sequences = tf.shape(flat)[0], tf.shape(lengths)[0]
    return tf.reshape(flat, [sequences, rows // tf.maximum(sequences, 1), flat.shape[1]])


def _check_rows(rows: int | None, sequences: int | None) -> None:
    """Raises ValueError where the rows are not that many sequences; sizes unknown in a trace fail when it runs."""
    if rows is not None and sequences is not None and rows != sequences * (rows // max(sequences, 1)):
        raise ValueError(f"Got {rows} rows, which are not {sequences} sequences of one length; pad them first.")


class LSTMWrapper(LSTMBehind, TFLayerOwner, RecurrentNetwork):
    """Any model without memory, an LSTM behind it, and heads behind that; see `LSTMBehind`."""

    heads_class = MemoryHeads
