"""Optimisers' steps with denormal numbers: moments of weights whose gradients have become 0."""

import pytest
import torch
from torch import nn

from rlframe.policy.torch.flat import FlatAdam, FlatParameters, step_flushing_denormals

TINY = 1e-39  # float32's smallest normal number is 1.2e-38


def flushes() -> bool:
    """Returns whether this thread takes denormal numbers for 0."""
    return not torch.full((), TINY).mul(1.0).item()


@pytest.fixture
def flag():
    """Restores what is usual: denormal numbers are computed with."""
    yield
    torch.set_flush_denormal(False)


@pytest.fixture
def optimizer():
    flat = FlatParameters([nn.Parameter(torch.ones(64))])
    flat.param.grad.fill_(1.0)
    return FlatAdam(flat, 0.1)


def test_moments_do_not_become_denormal(optimizer):
    step_flushing_denormals(optimizer)
    (state,) = optimizer.state.values()
    optimizer.flat.grad.zero_()
    state["exp_avg"].fill_(TINY)
    state["exp_avg_sq"].fill_(TINY)
    step_flushing_denormals(optimizer)
    assert not state["exp_avg"].any()
    assert not state["exp_avg_sq"].any()


def test_weights_are_those_of_steps_with_denormals():
    def trained(step):
        torch.manual_seed(0)
        flat = FlatParameters([nn.Parameter(torch.randn(64))])
        made = FlatAdam(flat, 0.01)
        for number in range(1200):  # 0.9 ** 1200 is denormal
            flat.grad.copy_(torch.randn(64) if number < 10 else torch.zeros(64))
            step(made)
        return flat.param.detach()

    assert torch.equal(trained(step_flushing_denormals), trained(lambda made: made.step()))


@pytest.mark.parametrize("before", [False, True])
def test_the_threads_flag_is_what_it_was(optimizer, flag, before):
    torch.set_flush_denormal(before)
    step_flushing_denormals(optimizer)
    assert flushes() == before


def test_a_failing_step_leaves_the_flag_as_it_was(optimizer, flag):
    optimizer.register_step_pre_hook(lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        step_flushing_denormals(optimizer)
    assert not flushes()
