"""Weights that are held while others learn."""

import torch

from rlframe.agents.dreamer.utils import FreezeParameters


def test_frozen_weights_get_no_gradients_and_pass_them_on():
    layer, held = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)
    held.bias.requires_grad = False
    with FreezeParameters(held.parameters()):
        held(layer(torch.ones(1, 2))).sum().backward()
    assert layer.weight.grad is not None
    assert held.weight.grad is None
    assert [weight.requires_grad for weight in held.parameters()] == [True, False]
