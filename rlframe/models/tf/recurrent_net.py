"""The base of recurrent TensorFlow models of the user's own."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from rlframe.models.tf.misc import flat_rows
from rlframe.models.tf.tf_modelv2 import TFModelV2


class RecurrentNetwork(TFModelV2):
    """Gives its subclass inputs in the shape of sequences; define `forward_rnn`, `get_initial_state`, `value_function`.

    The outputs' rows are the inputs' rows again.
    """

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Any, list[Any]]:
        """Adds the time dimension, runs `forward_rnn`, and removes the time dimension from its outputs.

        Args:
            input_dict: `obs_flat`, float `[num_seqs · T, D]`.
            state: State at the beginning of every sequence, `[num_seqs, S]` each.
            seq_lens: Lengths of the sequences, integer `[num_seqs]`.

        Returns:
            Outputs, float `[num_seqs · T, num_outputs]`, and the states at the end.
        """
        if seq_lens is None:
            raise ValueError(
                f"{type(self).__name__} is recurrent and needs seq_lens, the lengths of the sequences; got None."
            )
        flat, lengths = flat_rows(input_dict["obs_flat"]), tf.convert_to_tensor(seq_lens)
        _check_rows(flat.shape[0], lengths.shape[0])
        rows, sequences = tf.shape(flat)[0], tf.shape(lengths)[0]
        inputs = tf.reshape(flat, [sequences, rows // tf.maximum(sequences, 1), flat.shape[1]])
        if self.time_major:
            inputs = _swapped(inputs)
        outputs, new_state = self.forward_rnn(inputs, state, seq_lens)
        if self.time_major:
            outputs = _swapped(outputs)
        return tf.reshape(outputs, [rows, outputs.shape[-1]]), new_state

    def forward_rnn(self, inputs: Any, state: list[Any], seq_lens: Any) -> tuple[Any, list[Any]]:
        """Computes the outputs for padded sequences.

        Args:
            inputs: Flat observations. Float `[num_seqs, T, D]`, or `[T, num_seqs, D]` where the model is time-major.
            state: State at the beginning of every sequence, `[num_seqs, S]` each.
            seq_lens: Lengths of the sequences without padding, integer `[num_seqs]`.

        Returns:
            Outputs of the inputs' leading dimensions and width num_outputs, and the list of states at the end.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define forward_rnn(self, inputs, state, seq_lens) and return "
            f"(outputs[num_seqs, T, num_outputs], list of states)."
        )


def _check_rows(rows: int | None, sequences: int | None) -> None:
    """Raises ValueError where the rows are not that many sequences; sizes unknown in a trace fail when it runs."""
    if rows is not None and sequences is not None and rows != sequences * (rows // max(sequences, 1)):
        raise ValueError(f"Got {rows} rows, which are not {sequences} sequences of one length; pad them first.")


def _swapped(x: Any) -> Any:
    """Returns `x [a, b, c]` as `[b, a, c]`."""
    return tf.transpose(x, [1, 0, 2])
