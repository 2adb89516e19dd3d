"""Attention behind any model: the Gated Transformer-XL, in PyTorch."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from rlframe.models.attention_positions import sinusoids
from rlframe.models.memory_models import AttentionBehind
from rlframe.models.torch.fcnet import MemoryHeads
from rlframe.models.torch.layer_owner import TorchLayerOwner
from rlframe.models.torch.recurrent_net import RecurrentNetwork


class GRUGate(nn.Module):
    """Mixes a layer's input x with its output y, as a GRU cell would.

        r = σ(W_r y + U_r x),  z = σ(W_z y + U_z x − b),  h = tanh(W_g y + U_g (r ∘ x)),  out = (1 − z) ∘ x + z ∘ h

    A positive b makes the layer begin near the identity.

    Source: Parisotto et al. 2020, "Stabilizing Transformers for Reinforcement Learning", section 3.2.
    """

    def __init__(self, width: int, bias: float) -> None:
        super().__init__()
        self.w_r, self.u_r = _square(width), _square(width)
        self.w_z, self.u_z = _square(width), _square(width)
        self.w_g, self.u_g = _square(width), _square(width)
        self.bias = nn.Parameter(torch.full((width,), float(bias)))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns what is between x and y, `[B, T, D]` like both."""
        r = torch.sigmoid(self.w_r(y) + self.u_r(x))
        z = torch.sigmoid(self.w_z(y) + self.u_z(x) - self.bias)
        h = torch.tanh(self.w_g(y) + self.u_g(r * x))
        return (1.0 - z) * x + z * h


def _square(width: int) -> nn.Linear:
    return nn.Linear(width, width, bias=False)


class RelativeAttention(nn.Module):
    """Multi-head attention that knows how far back a step lies, not where.

        score_ij = ((q_i + u) · k_j + (q_i + v) · W_R R_{i−j}) / √d

    Args:
        width: Size of the embeddings, D.
        heads: Number of heads, H.
        head_size: Size of a head, d.
        window: Steps back that are seen.

    Source: Dai et al. 2019, "Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context", section 3.3.
    """

    def __init__(self, width: int, heads: int, head_size: int, window: int) -> None:
        super().__init__()
        self.heads, self.head_size, self.window = heads, head_size, window
        size = heads * head_size
        self.query, self.key = nn.Linear(width, size, bias=False), nn.Linear(width, size, bias=False)
        self.value, self.position = nn.Linear(width, size, bias=False), nn.Linear(width, size, bias=False)
        self.project = nn.Linear(heads * head_size, width, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(heads, head_size))
        self.position_bias = nn.Parameter(torch.zeros(heads, head_size))
        self.encodings: Tensor
        self.register_buffer("encodings", torch.from_numpy(sinusoids(window + 1, width)), persistent=False)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        """Returns what the steps `x` `[B, T, D]` gather from `context` `[B, M + T, D]`, of which they are the last."""
        batch, steps, _ = x.shape
        total = context.shape[1]
        query = self._split(self.query(x))
        key, value = self._split(self.key(context)), self._split(self.value(context))
        distance = (total - steps + torch.arange(steps, device=x.device))[:, None] - torch.arange(
            total, device=x.device
        )
        seen = (distance >= 0) & (distance <= self.window)
        position = self.position(self.encodings).reshape(self.window + 1, self.heads, self.head_size)
        between = position[distance.clamp(0, self.window)]
        scores = torch.einsum("bihd,bjhd->bhij", query + self.content_bias, key)
        scores = scores + torch.einsum("bihd,ijhd->bhij", query + self.position_bias, between)
        weights = torch.softmax((scores / math.sqrt(self.head_size)).masked_fill(~seen, -torch.inf), dim=-1)
        gathered = torch.einsum("bhij,bjhd->bihd", weights, value)
        projected: Tensor = self.project(gathered.reshape(batch, steps, self.heads * self.head_size))
        return projected

    def _split(self, x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:2], self.heads, self.head_size)


class GTrXLUnit(nn.Module):
    """One layer: attention over memory and steps, then a network at each step, each behind a norm and a gate."""

    def __init__(self, model_config: dict[str, Any]) -> None:
        super().__init__()
        width, mlp = int(model_config["attention_dim"]), int(model_config["attention_position_wise_mlp_dim"])
        bias = float(model_config["attention_init_gru_gate_bias"])
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = RelativeAttention(
            width,
            int(model_config["attention_num_heads"]),
            int(model_config["attention_head_dim"]),
            int(model_config["attention_memory_inference"]),
        )
        self.gate_1, self.gate_2 = GRUGate(width, bias), GRUGate(width, bias)
        self.mlp_0, self.mlp_1 = nn.Linear(width, mlp), nn.Linear(mlp, width)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        """Returns the layer's outputs `[B, T, D]` for inputs `x` `[B, T, D]` and what came before, `[B, M, D]`."""
        context = self.norm_1(torch.cat([memory.detach(), x], dim=1))
        x = self.gate_1(x, torch.relu(self.attention(context[:, memory.shape[1] :], context)))
        inner = self.mlp_1(torch.relu(self.mlp_0(self.norm_2(x))))
        gated: Tensor = self.gate_2(x, torch.relu(inner))
        return gated


class AttentionWrapper(AttentionBehind, TorchLayerOwner, RecurrentNetwork, nn.Module):
    """Any model without memory, a Gated Transformer-XL behind it, and heads behind that; see `AttentionBehind`."""

    heads_class = MemoryHeads

    def _make_units(self, count: int) -> nn.ModuleList:
        return nn.ModuleList([GTrXLUnit(self.model_config) for _ in range(count)])


__all__ = ["AttentionWrapper", "GRUGate", "GTrXLUnit", "RelativeAttention"]
