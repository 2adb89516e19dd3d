"""A Differentiable Neural Computer in PyTorch: cells that an LSTM writes and reads, and a model around it."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own abbreviation
from torch import Tensor, nn

from rlframe.models.torch.recurrent_net import RecurrentNetwork

#: States of the memory by their names. N cells of the width W, R heads that read, B sequences.
Memory = dict[str, Tensor]
#: The controller's state, the memory's, and what was read last `[B, R · W]`.
Hidden = tuple[list[tuple[Tensor, Tensor]], Memory, Tensor]


class DNC(nn.Module):
    """An LSTM that writes to cells and reads them: by content, by what is free, and in the order they were written in.

    Args:
        input_size: Width of the inputs.
        hidden_size: Width of the LSTM, and of the outputs.
        num_layers: 1.
        num_hidden_layers: Layers of the LSTM.
        read_heads: R.
        cell_size: W.
        nr_cells: N.
        nonlinearity: "tanh".
        gpu_id: Not used: the module goes where `to` sends it.

    Raises:
        ValueError: If `num_layers` or `nonlinearity` is another.

    Source: Graves et al. 2016, "Hybrid computing using a neural network with dynamic external memory", methods. Names
    of its equations' symbols stand beside them.
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, num_hidden_layers: int = 1, read_heads: int = 4,
        cell_size: int = 16, nr_cells: int = 32, nonlinearity: str = "tanh", gpu_id: int | None = None,
    ) -> None:  # fmt: skip
        del gpu_id
        if (num_layers, nonlinearity) != (1, "tanh"):
            raise ValueError(f"DNC got {num_layers=} and {nonlinearity=}; wanted 1 and 'tanh'.")
        super().__init__()
        self.heads, self.width, self.cells = read_heads, cell_size, nr_cells
        self.controller = nn.LSTM(input_size + read_heads * cell_size, hidden_size, num_hidden_layers, batch_first=True)
        heads, width = read_heads, cell_size
        #: Keys and strengths of reading, those of writing, erased, written, free gates, two gates, modes of reading.
        self._sizes = [heads * width, heads, width, 1, width, width, heads, 1, 1, 3 * heads]
        self.interface = nn.Linear(hidden_size, sum(self._sizes))
        self.output = nn.Linear(hidden_size + heads * width, hidden_size)

    def forward(self, inputs: Tensor, hidden: Any = None) -> tuple[Tensor, Hidden]:
        """Returns outputs `[B, T, hidden_size]` of inputs `[B, T, input_size]`, and the state after the last.

        Args:
            inputs: Sequences.
            hidden: The state before the first; None, or three of None, is an empty memory.
        """
        controller, memory, read = self.start(inputs) if hidden is None or hidden[0] is None else hidden
        state, outputs = controller[0], []
        for step in range(inputs.shape[1]):
            seen = torch.cat([inputs[:, step], read], dim=1)[:, None]
            features, state = self.controller(seen, state)
            read, memory = self.access(features[:, 0], memory)
            outputs.append(self.output(torch.cat([features[:, 0], read], dim=1)))
        return torch.stack(outputs, dim=1), ([state], memory, read)

    def start(self, inputs: Tensor) -> Hidden:
        """Returns the state of an empty memory, for as many sequences as the inputs are."""
        zeros = inputs.new_zeros
        sequences, cells = len(inputs), self.cells
        layers = (self.controller.num_layers, sequences, self.controller.hidden_size)
        memory = {
            "memory": zeros(sequences, cells, self.width),
            "link_matrix": zeros(sequences, 1, cells, cells),
            "precedence": zeros(sequences, 1, cells),
            "read_weights": zeros(sequences, self.heads, cells),
            "write_weights": zeros(sequences, 1, cells),
            "usage_vector": zeros(sequences, cells),
        }
        return [(zeros(layers), zeros(layers))], memory, zeros(sequences, self.heads * self.width)

    def access(self, features: Tensor, before: Memory) -> tuple[Tensor, Memory]:
        """Returns what is read `[B, R · W]` after one step of writing, and the memory then. Features `[B, hidden]`."""
        parts = self.interface(features).split(self._sizes, dim=1)
        read_keys, read_strengths, write_key, write_strength, erase, write, free, alloc_gate, write_gate, modes = parts
        read_before, written_before = before["read_weights"], before["write_weights"][:, 0]
        # ψ_t, u_t, a_t
        kept = (1 - free.sigmoid()[:, :, None] * read_before).prod(dim=1)
        usage = (before["usage_vector"] + written_before * (1 - before["usage_vector"])) * kept
        # w_t^w
        by_content = content_weights(before["memory"], write_key[:, None], write_strength)[:, 0]
        gate = alloc_gate.sigmoid()
        weights = write_gate.sigmoid() * (gate * allocation(usage) + (1 - gate) * by_content)
        # M_t
        erased = 1 - weights[:, :, None] * erase.sigmoid()[:, None]
        memory = before["memory"] * erased + weights[:, :, None] * write[:, None]
        # L_t, p_t
        precedence = before["precedence"][:, 0]
        link = (1 - weights[:, :, None] - weights[:, None]) * before["link_matrix"][:, 0]
        link = (link + weights[:, :, None] * precedence[:, None]) * (1 - torch.eye(self.cells, device=link.device))
        precedence = (1 - weights.sum(dim=1, keepdim=True)) * precedence + weights
        # w_t^r = π_1 b_t + π_2 c_t + π_3 f_t
        keys = read_keys.reshape(-1, self.heads, self.width)
        ways = [read_before @ link, content_weights(memory, keys, read_strengths), read_before @ link.mT]
        shares = modes.reshape(-1, self.heads, 3).softmax(dim=2)
        reading = (torch.stack(ways, dim=-1) * shares[:, :, None]).sum(dim=-1)
        after = {
            "memory": memory,
            "link_matrix": link[:, None],
            "precedence": precedence[:, None],
            "read_weights": reading,
            "write_weights": weights[:, None],
            "usage_vector": usage,
        }
        return (reading @ memory).flatten(1), after


def content_weights(memory: Tensor, keys: Tensor, strengths: Tensor) -> Tensor:
    """Returns the softmax over cells `[B, K, N]` of their cosines to keys, times 1 + softplus(strength).

    Args:
        memory: `[B, N, W]`.
        keys: `[B, K, W]`.
        strengths: `[B, K]`.
    """
    cosines = F.cosine_similarity(keys[:, :, None], memory[:, None], dim=3, eps=1e-6)
    return (cosines * (1 + F.softplus(strengths))[:, :, None]).softmax(dim=2)


def allocation(usage: Tensor) -> Tensor:
    """Returns how much to write to each cell `[B, N]` if it is to be the least used: a_t of usage `[B, N]`."""
    ordered, cells = usage.sort(dim=1)
    before = torch.cat([torch.ones_like(ordered[:, :1]), ordered[:, :-1]], dim=1).cumprod(dim=1)
    return torch.zeros_like(usage).scatter(1, cells, (1 - ordered) * before)


class DNCMemory(RecurrentNetwork, nn.Module):
    """Dense layers, a `DNC` behind them, and heads behind that.

    Args:
        obs_space: Preprocessed observation space.
        action_space: Action space.
        num_outputs: Width of the outputs.
        model_config: The `model` section of the config.
        name: Name of the model.
        **custom_model_kwargs: Entries that take the place of `DEFAULT_CONFIG`'s.

    Raises:
        ValueError: If an entry has another name.
    """

    DEFAULT_CONFIG: ClassVar[dict[str, Any]] = {
        # What is made with the arguments of `DNC`.
        "dnc_model": DNC,
        # Layers of the LSTM, and their width.
        "num_hidden_layers": 1,
        "hidden_size": 64,
        "num_layers": 1,
        "read_heads": 4,
        "nr_cells": 32,
        "cell_size": 16,
        "nonlinearity": "tanh",
        # A module behind a dense layer of the first of these sizes; None is a dense layer of the second, and tanh.
        "preprocessor": None,
        "preprocessor_input_size": 64,
        "preprocessor_output_size": 64,
    }
    MEMORY_KEYS: ClassVar[list[str]] = [
        *("memory", "link_matrix", "precedence", "read_weights", "write_weights", "usage_vector"),
    ]

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, model_config: dict[str, Any], name: str,
        **custom_model_kwargs: Any,
    ) -> None:  # fmt: skip
        unknown = custom_model_kwargs.keys() - self.DEFAULT_CONFIG.keys()
        if unknown:
            known = ", ".join(self.DEFAULT_CONFIG)
            raise ValueError(f"DNCMemory got the options {sorted(unknown)}; wanted some of {known}.")
        nn.Module.__init__(self)
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.cfg = {**self.DEFAULT_CONFIG, **custom_model_kwargs}
        self.obs_dim = int(gymnasium.spaces.utils.flatdim(self.obs_space))
        first, second = self.cfg["preprocessor_input_size"], self.cfg["preprocessor_output_size"]
        behind = self.cfg["preprocessor"] or nn.Sequential(nn.Linear(first, second), nn.Tanh())
        self.preprocessor = nn.Sequential(nn.Linear(self.obs_dim, first), behind)
        self.logit_branch = nn.Linear(self.cfg["hidden_size"], num_outputs)
        self.value_branch = nn.Linear(self.cfg["hidden_size"], 1)
        self.dnc: Any = None
        self.build_dnc(None)
        self.cur_val: Tensor | None = None

    def build_dnc(self, device_idx: int | None) -> None:
        """Makes the computer anew; `device_idx` is its `gpu_id`."""
        others = {"dnc_model", "preprocessor", "preprocessor_input_size", "preprocessor_output_size"}
        given = {option: value for option, value in self.cfg.items() if option not in others}
        device = -1 if device_idx is None else device_idx
        self.dnc = self.cfg["dnc_model"](input_size=self.cfg["preprocessor_output_size"], gpu_id=device, **given)

    def get_initial_state(self) -> list[Any]:
        """Returns nine tensors of zeros: two of the LSTM, what was read last, and the memory's by `MEMORY_KEYS`."""
        cells, heads, width = (self.cfg[key] for key in ("nr_cells", "read_heads", "cell_size"))
        layers = (self.cfg["num_hidden_layers"], self.cfg["hidden_size"])
        memory = [(cells, width), (1, cells, cells), (1, cells), (heads, cells), (1, cells), (cells,)]
        return [torch.zeros(shape) for shape in (layers, layers, (width * heads,), *memory)]

    def unpack_state(self, state: list[Tensor]) -> Hidden:
        """Returns a list of states `[B, ...]`, as the initial state is one, as the computer takes it."""
        hidden, cell, read, *memory = state
        layers = [(hidden.transpose(0, 1).contiguous(), cell.transpose(0, 1).contiguous())]
        return layers, dict(zip(self.MEMORY_KEYS, memory, strict=True)), read

    def pack_state(
        self, ctrl_hidden: list[tuple[Tensor, Tensor]], memory_dict: Memory, read_vecs: Tensor
    ) -> list[Tensor]:
        """Returns the computer's state as a list of states `[B, ...]`."""
        layers = [part.transpose(0, 1) for part in ctrl_hidden[0]]
        return [*layers, read_vecs, *(memory_dict[key] for key in self.MEMORY_KEYS)]

    def validate_unpack(self, dnc_output: Hidden, unpacked_state: Hidden) -> None:
        """Checks that two states of the computer have the same shapes.

        Raises:
            ValueError: If they do not.
        """
        shapes = [[tuple(part.shape) for part in self.pack_state(*given)] for given in (dnc_output, unpacked_state)]
        if shapes[0] != shapes[1]:
            raise ValueError(f"DNCMemory got states of the shapes {shapes[1]}; wanted {shapes[0]}.")

    def forward_rnn(self, inputs: Tensor, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns outputs of padded sequences, and the states at their ends."""
        del seq_lens
        features, hidden = self.dnc(self.preprocessor(inputs), self.unpack_state(state))
        self.cur_val = self.value_branch(features).reshape(-1)
        return self.logit_branch(features), self.pack_state(*hidden)

    def value_function(self) -> Tensor:
        """Returns the value of every row of the last forward pass."""
        assert self.cur_val is not None
        return self.cur_val
