"""Models with memory, once for both frameworks: the base of users' own, and memories behind any other model."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np

from rlframe.data.columns import OBS, PREV_ACTIONS, PREV_REWARDS
from rlframe.models.action_encoding import action_encoding, encoded_size
from rlframe.models.action_mask import ACTION_MASK, LOGIT_OF_FORBIDDEN
from rlframe.models.catalog import has_action_mask
from rlframe.models.layer_owner import LayerOwner
from rlframe.models.modelv2 import IS_TRAINING, OBS_FLAT, ModelV2
from rlframe.models.past_views import (
    PREV_N_ACTIONS,
    PREV_N_REWARDS,
    encode_steps,
    previous_step_views,
    previous_steps_views,
)
from rlframe.models.recurrent_actor import heads_config, lstm_spec
from rlframe.models.spec import LSTM, Dense
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor


class SequenceModel(ModelV2):
    """Gives its subclass inputs in the shape of sequences; define `forward_rnn`, `get_initial_state`, `value_function`.

    The outputs' rows are the inputs' rows again.
    """

    def _as_sequences(self, rows: Tensor, seq_lens: Any) -> Tensor:
        """Returns padded rows `[num_seqs · T, D]` as `[num_seqs, T, D]`; there are as many sequences as lengths."""
        raise NotImplementedError

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
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
        inputs = self._as_sequences(ops.flat_rows(input_dict[OBS_FLAT]), seq_lens)
        inputs = ops.swap_axes(inputs, 0, 1) if self.time_major else inputs
        outputs, new_state = self.forward_rnn(inputs, state, seq_lens)
        outputs = ops.swap_axes(outputs, 0, 1) if self.time_major else outputs
        return ops.reshape(outputs, (-1, outputs.shape[-1])), new_state

    def forward_rnn(self, inputs: Tensor, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
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


class MemoryBehind(LayerOwner, SequenceModel):
    """Any model without memory, a memory behind it, and heads for outputs and values behind that.

    Args:
        obs_space: Preprocessed observation space.
        action_space: Action space of the environment.
        num_outputs: Width of the outputs.
        model_config: The `model` section of the config.
        name: Name of the model.
        inner: The model before the memory; its outputs are features.
    """

    #: The framework's `MemoryHeads`.
    heads_class: ClassVar[Any]
    #: What is called when there are no lengths of sequences.
    _kind: ClassVar[str]

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
        self.init_model_base(obs_space, action_space, num_outputs, model_config, name)
        self.inner = inner
        self._encoding = action_encoding(self.action_space)
        self._actions, self._rewards = self._past_steps()
        self.view_requirements.update(inner.view_requirements)
        self.view_requirements.update(self._past_views())
        width = self._add_memory(inner.num_outputs + self._actions * encoded_size(self._encoding) + self._rewards)
        features = gymnasium.spaces.Box(-np.inf, np.inf, (width,), np.float32)
        heads: Any = self.heads_class
        if not self.uses_value_function:
            heads = type(heads.__name__, (heads,), {"uses_value_function": False, "__module__": __name__})
        self.heads = heads(features, action_space, num_outputs, heads_config(model_config), "heads")
        #: Whether observations say which actions are allowed, and no model of the user's own minds that.
        self._masks_actions = not model_config.get("custom_model") and has_action_mask(obs_space, num_outputs)

    def _past_steps(self) -> tuple[int, int]:
        """Returns how many past actions and rewards the memory sees."""
        raise NotImplementedError

    def _past_views(self) -> dict[str, Any]:
        """Returns the view requirements of these."""
        raise NotImplementedError

    def _add_memory(self, in_size: int) -> int:
        """Makes the memory's weights; returns the width of what it gives."""
        raise NotImplementedError

    def _sequences(self, input_dict: Any, seq_lens: Any, columns: tuple[str, str]) -> Tensor:
        """Returns features and past steps, `[num_seqs · T, D]`.

        Args:
            input_dict: Observations and the columns.
            seq_lens: Lengths of the sequences.
            columns: Of past actions and of past rewards.
        """
        if seq_lens is None:
            raise ValueError(f"the {self._kind} needs seq_lens, the lengths of the sequences; got None")
        parts = [ops.flat_rows(self.inner.forward(input_dict, [], None)[0])]
        width = parts[0].shape[1]  # a tensor, or None, where it is traced
        # oneDNN's LSTM would read beyond its weights without a word.
        if isinstance(width, int) and width != self.inner.num_outputs:
            raise ValueError(
                f"the model in front of the {self._kind} gave rows of {width} numbers and has num_outputs "
                f"{self.inner.num_outputs}: set self.num_outputs to the width of what its forward() returns"
            )
        if self._actions:
            parts.append(encode_steps(input_dict[columns[0]], self._encoding, self._actions))
        if self._rewards:
            parts.append(ops.reshape(ops.to_float(input_dict[columns[1]]), (-1, self._rewards)))
        return parts[0] if len(parts) == 1 else ops.concat(parts, 1)

    def _headed(self, features: Tensor, width: int, input_dict: Any) -> Tensor:
        """Returns outputs `[num_seqs · T, num_outputs]` of what the memory gives, `[num_seqs, T, width]`.

        Where observations have an action mask, outputs of forbidden actions are the lowest float, as `ActionMask` has
        it; rows that allow nothing, as those are that pad sequences, stay as they are.
        """
        outputs: Tensor = self.heads.forward({OBS_FLAT: ops.reshape(features, (-1, width))}, [], None)[0]
        if not self._masks_actions:
            return outputs
        mask = ops.to_float(ops.flat_rows(input_dict[OBS][ACTION_MASK]))
        most = ops.reshape(ops.max(mask, axis=1), (-1, 1))
        return ops.where(most - mask < 0.5, outputs, LOGIT_OF_FORBIDDEN)

    def value_function(self) -> Tensor:
        """Returns the value of every row of the last forward pass. Float `[num_seqs · T]`.

        Raises:
            ValueError: If no forward pass came before.
        """
        self._catch_up()
        return self.heads.value_function()

    def _do_again(self, obs: Any) -> None:
        del obs
        raise ValueError(
            "value_function() and last_output() speak of the last forward pass, and these actions were made without "
            "one: read vf_preds of what compute_single_action() and compute_actions() return besides"
        )


class LSTMBehind(MemoryBehind):
    """An LSTM behind any model; keys `lstm_cell_size`, `lstm_use_prev_action`, `lstm_use_prev_reward`."""

    _kind = "LSTM"
    lstm: Any

    def _past_steps(self) -> tuple[int, int]:
        self.use_prev_action = bool(self.model_config["lstm_use_prev_action"])
        self.use_prev_reward = bool(self.model_config["lstm_use_prev_reward"])
        return int(self.use_prev_action), int(self.use_prev_reward)

    def _past_views(self) -> dict[str, Any]:
        return previous_step_views(self.use_prev_action, self.use_prev_reward, self.action_space)

    def _add_memory(self, in_size: int) -> int:
        self.cell_size = int(self.model_config["lstm_cell_size"])
        self.add_spec_layers([LSTM("lstm", self.cell_size)], in_size)
        return self.cell_size

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns outputs, float `[num_seqs · T, num_outputs]`, and the states [h, c] at the end of every sequence."""
        rows = self._sequences(input_dict, seq_lens, (PREV_ACTIONS, PREV_REWARDS))
        outputs, new_state = self.lstm(self._as_sequences(rows, seq_lens), state)
        return self._headed(outputs, self.cell_size, input_dict), new_state

    def get_initial_state(self) -> list[Any]:
        """Returns zeros for h and c, float32 `[S]` each."""
        return [np.zeros(self.cell_size, np.float32), np.zeros(self.cell_size, np.float32)]

    def actor_spec(self) -> dict[str, Any] | None:
        """Returns the spec for `LSTMActor`; None where layers before the LSTM are not dense, or actions are masked."""
        own = (LSTMBehind.forward, LSTMBehind.get_initial_state, MemoryBehind.value_function)
        if any(getattr(type(self), method.__name__) is not method for method in own):  # a class of the user's
            return None
        if self._masks_actions:
            return None
        heads = self.heads.actor_spec()
        assert heads is not None
        return lstm_spec(self.inner.actor_spec(), heads, self.model_config, self.action_space)


class AttentionBehind(MemoryBehind):
    """A Gated Transformer-XL behind any model; keys `attention_*`.

    The state of a unit is its inputs of the last `attention_memory_inference` steps, zeros before the episode. Each
    step sees that many steps back, in training as when acting.

    Source: Parisotto et al. 2020, "Stabilizing Transformers for Reinforcement Learning".
    """

    _kind = "attention"

    def _past_steps(self) -> tuple[int, int]:
        config = self.model_config
        self.past_actions = int(config["attention_use_n_prev_actions"])
        self.past_rewards = int(config["attention_use_n_prev_rewards"])
        return self.past_actions, self.past_rewards

    def _past_views(self) -> dict[str, Any]:
        return previous_steps_views(self.past_actions, self.past_rewards, self.action_space)

    def _add_memory(self, in_size: int) -> int:
        config = self.model_config
        self.width = int(config["attention_dim"])
        self.memory_size = int(config["attention_memory_inference"])
        self.memory_training = int(config["attention_memory_training"])
        embedding = [Dense("embedding", "linear", self.width)]
        self.add_spec_layers(embedding, in_size)
        self._embedding = self.bind_spec(embedding)
        self.units = self._make_units(int(config["attention_num_transformer_units"]))
        return self.width

    def _make_units(self, count: int) -> Any:
        """Returns that many of the framework's `GTrXLUnit`s."""
        raise NotImplementedError

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns outputs, float `[num_seqs · T, num_outputs]`, and the units' memories behind every sequence."""
        rows = self._sequences(input_dict, seq_lens, (PREV_N_ACTIONS, PREV_N_REWARDS))
        x = self._as_sequences(self.run_spec(self._embedding, rows), seq_lens)
        size = self.memory_size
        kept = self.memory_training if input_dict[IS_TRAINING] else size
        new_state = []
        for unit, memory in zip(self.units, state, strict=True):
            new_state.append(ops.concat([memory, x], 1)[:, -size:] if size else memory)
            x = unit(x, memory[:, max(size - kept, 0) :])
        return self._headed(x, self.width, input_dict), new_state

    def get_initial_state(self) -> list[Any]:
        """Returns zeros, float32 `[memory, D]` for each unit."""
        return [np.zeros((self.memory_size, self.width), np.float32) for _ in self.units]
