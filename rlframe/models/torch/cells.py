"""Recurrent layers in PyTorch; what they compute, and their weights, are said in `rlframe.models.spec`."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class GRU(nn.Module):
    """One layer of gated recurrent units; see `rlframe.models.spec.GRU`."""

    states = 1

    def __init__(self, in_size: int, cell_size: int) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(cell_size)
        self.weight_ih = nn.Parameter(torch.empty(3 * cell_size, in_size).uniform_(-bound, bound))
        self.weight_hh = nn.Parameter(torch.empty(3 * cell_size, cell_size).uniform_(-bound, bound))
        self.bias_ih = nn.Parameter(torch.empty(3 * cell_size).uniform_(-bound, bound))
        self.bias_hh = nn.Parameter(torch.empty(3 * cell_size).uniform_(-bound, bound))

    def forward(self, x: Tensor, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Returns outputs [B, T, S] and the state [h] after the last step, [B, S], of `x` [B, T, in]."""
        weights: list[Tensor] = [self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh]
        outputs, h = torch.gru(x, state[0].unsqueeze(0), weights, True, 1, 0.0, self.training, False, True)
        return outputs, [h.squeeze(0)]


class LSTM(nn.Module):
    """One layer of LSTM cells; see `rlframe.models.spec.LSTM`."""

    states = 2

    def __init__(self, in_size: int, cell_size: int) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(cell_size)
        self.weight_ih = nn.Parameter(torch.empty(4 * cell_size, in_size).uniform_(-bound, bound))
        self.weight_hh = nn.Parameter(torch.empty(4 * cell_size, cell_size).uniform_(-bound, bound))
        bias = torch.zeros(4 * cell_size)
        bias[cell_size : 2 * cell_size] = 1.0
        self.bias = nn.Parameter(bias)

    def forward(self, x: Tensor, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Returns outputs [B, T, S] and the states [h, c] after the last step, [B, S] each, of `x` [B, T, in]."""
        weights = [self.weight_ih, self.weight_hh, self.bias, torch.zeros_like(self.bias)]
        hx = (state[0].unsqueeze(0), state[1].unsqueeze(0))
        outputs, h, c = torch.lstm(x, hx, weights, True, 1, 0.0, self.training, False, True)
        return outputs, [h.squeeze(0), c.squeeze(0)]
