"""The base of recurrent PyTorch models of the user's own."""

from __future__ import annotations

from typing import Any

import torch

from rlframe.data.sequences import add_time_dimension
from rlframe.models.torch.torch_modelv2 import TorchModelV2


class RecurrentNetwork(TorchModelV2):
    """Gives its subclass inputs in the shape of sequences; define `forward_rnn`, `get_initial_state`, `value_function`.

    `class MyRNN(RecurrentNetwork, nn.Module)`; the outputs' rows are the inputs' rows again.
    """

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[torch.Tensor, list[Any]]:
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
        flat = input_dict["obs_flat"].float()
        inputs = add_time_dimension(flat.reshape(flat.shape[0], -1), seq_lens=seq_lens, time_major=self.time_major)
        outputs, new_state = self.forward_rnn(inputs, state, seq_lens)
        if self.time_major:
            outputs = outputs.swapaxes(0, 1)
        return outputs.reshape(flat.shape[0], -1), new_state

    def forward_rnn(self, inputs: torch.Tensor, state: list[Any], seq_lens: Any) -> tuple[torch.Tensor, list[Any]]:
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
