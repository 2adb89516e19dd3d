"""Recurrent PyTorch models: the base of the user's own, and the LSTM behind any other model."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
import torch
from torch import nn

from rlframe.data.columns import PREV_ACTIONS, PREV_REWARDS
from rlframe.data.sequences import add_time_dimension
from rlframe.models.action_encoding import action_encoding, encoded_size
from rlframe.models.past_views import encode_steps, previous_step_views
from rlframe.models.recurrent_actor import heads_config, lstm_spec
from rlframe.models.torch.cells import LSTM
from rlframe.models.torch.fcnet import MemoryHeads
from rlframe.models.torch.rllib_layers import RLlibLayers, slim
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


class LSTMWrapper(RLlibLayers, RecurrentNetwork, nn.Module):
    """Any model without memory, an LSTM behind it, and heads for outputs and values behind that.

    The heads are also found as `_logits_branch` and `_value_branch`, the layers before the LSTM as `_hidden_layers` or
    `_convs`.

    Args:
        obs_space: Preprocessed observation space.
        action_space: Action space of the environment.
        num_outputs: Width of the outputs.
        model_config: Keys `lstm_cell_size`, `lstm_use_prev_action`, `lstm_use_prev_reward`, `_time_major`.
        name: Name of the model.
        inner: The model before the LSTM; its outputs are features.
    """

    _rllib_layers: ClassVar = {
        "_hidden_layers": lambda model: getattr(model.inner, "_hidden_layers", None),
        "_convs": lambda model: getattr(model.inner, "_convs", None),
        "_logits_branch": lambda model: slim(model.heads.output),
        "_value_branch": lambda model: slim(model.heads.value),
    }

    def __init__(
        self,
        obs_space: Any,
        action_space: Any,
        num_outputs: int | None,
        model_config: dict[str, Any],
        name: str | None,
        *,
        inner: Any,
    ) -> None:
        nn.Module.__init__(self)
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.inner = inner
        self.cell_size = int(model_config["lstm_cell_size"])
        self._encoding = action_encoding(self.action_space)
        self.use_prev_action = bool(model_config["lstm_use_prev_action"])
        self.use_prev_reward = bool(model_config["lstm_use_prev_reward"])
        self.view_requirements.update(inner.view_requirements)
        self.view_requirements.update(
            previous_step_views(self.use_prev_action, self.use_prev_reward, self.action_space)
        )
        width = inner.num_outputs + self.use_prev_action * encoded_size(self._encoding) + self.use_prev_reward
        self.lstm = LSTM(width, self.cell_size)
        features = gymnasium.spaces.Box(-np.inf, np.inf, (self.cell_size,), np.float32)
        self.heads = MemoryHeads(features, action_space, num_outputs, heads_config(model_config), "heads")

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[torch.Tensor, list[Any]]:
        """Returns outputs, float `[num_seqs · T, num_outputs]`, and the states [h, c] at the end of every sequence."""
        if seq_lens is None:
            raise ValueError("the LSTM needs seq_lens, the lengths of the sequences; got None")
        x, _ = self.inner.forward(input_dict, [], None)
        parts = [x.reshape(x.shape[0], -1)]
        if self.use_prev_action:
            parts.append(encode_steps(input_dict[PREV_ACTIONS], self._encoding))
        if self.use_prev_reward:
            parts.append(input_dict[PREV_REWARDS].float().reshape(-1, 1))
        rows = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        inputs = add_time_dimension(rows, seq_lens=seq_lens, time_major=self.time_major)
        outputs, new_state = self.lstm(inputs, state, self.time_major)
        if self.time_major:
            outputs = outputs.swapaxes(0, 1)
        return self.heads.forward({"obs_flat": outputs.reshape(rows.shape[0], -1)}, [], None)[0], new_state

    def get_initial_state(self) -> list[Any]:
        """Returns zeros for h and c, float32 `[S]` each."""
        return [np.zeros(self.cell_size, np.float32), np.zeros(self.cell_size, np.float32)]

    def value_function(self) -> torch.Tensor:
        """Returns the value of every row of the last forward pass. Float `[num_seqs · T]`."""
        values: torch.Tensor = self.heads.value_function()
        return values

    def actor_spec(self) -> dict[str, Any] | None:
        """Returns the spec for `LSTMActor`; None where the model before the LSTM is none of dense layers."""
        if type(self) is not LSTMWrapper:
            return None
        heads = self.heads.actor_spec()
        assert heads is not None
        return lstm_spec(self.inner.actor_spec(), heads, self.model_config, self.action_space)
