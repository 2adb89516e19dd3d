"""PyTorch's threads: by the work of a batch, or as the program says."""

from itertools import pairwise

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from rlframe.policy.torch.threads import multiplications
from rlframe.utils import threads
from rlframe.utils.cpus import THREAD_VARIABLES
from rlframe.utils.threads import Threads

VECTOR = gym.spaces.Box(-1, 1, (8,), np.float32)
IMAGE = gym.spaces.Box(0, 255, (84, 84, 4), np.uint8)


def dense(*sizes: int) -> nn.Module:
    return nn.Sequential(*(nn.Linear(a, b) for a, b in pairwise(sizes)))


def threads_for(model: nn.Module, space: gym.Space, asked: int | None) -> Threads:
    return Threads(torch, multiplications(model, space.shape), asked)


CONVOLUTIONS = nn.Sequential(
    nn.Conv2d(4, 16, 8, 4), nn.Conv2d(16, 32, 4, 2), nn.Conv2d(32, 256, 11), nn.Flatten(), nn.Linear(256, 4)
)


@pytest.fixture(autouse=True)
def nobody_has_said_anything(monkeypatch):
    for name in THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    before = torch.get_num_threads()
    monkeypatch.setattr(threads, "usable_cpus", lambda: 4)
    monkeypatch.setattr("rlframe.utils.cpus.usable_cpus", lambda: 4)
    monkeypatch.setattr(threads, "default_threads", lambda: (before, before))
    yield
    torch.set_num_threads(before)


def test_the_work_of_a_row_is_a_multiplication_per_weight_and_in_convolutions_per_place():
    assert multiplications(dense(8, 64, 2), (8,)) == 8 * 64 + 64 + 64 * 2 + 2
    convolutions = (4 * 64 * 16 + 16) * 21 * 21 + (16 * 16 * 32 + 32) * 441 // 4 + (32 * 121 * 256 + 256) * 441 // 4
    assert multiplications(CONVOLUTIONS, (84, 84, 4)) == pytest.approx(convolutions + 256 * 4 + 4, rel=1e-4)
    assert multiplications(CONVOLUTIONS, (4, 84, 84)) == multiplications(CONVOLUTIONS, (84, 84, 4))


@pytest.mark.parametrize(
    ("model", "space", "rows", "count"),
    [
        (dense(8, 256, 256, 4), VECTOR, 128, 1),
        (dense(8, 256, 256, 4), VECTOR, 4000, 4),
        (dense(8, 1024, 1024, 4), VECTOR, 64, 4),
        (CONVOLUTIONS, IMAGE, 32, 4),
    ],
)
def test_small_batches_of_small_networks_have_one_thread_and_large_work_all_cpus(model, space, rows, count):
    chosen = threads_for(model, space, None)
    assert chosen.count(rows) == count
    chosen.use(rows)
    assert torch.get_num_threads() == count
    chosen.use(rows)
    assert torch.get_num_threads() == count


def test_the_key_goes_before_the_environment_which_goes_before_the_work(monkeypatch):
    assert threads_for(dense(8, 1024, 1024, 4), VECTOR, 3).count(4000) == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert threads_for(dense(8, 1024, 1024, 4), VECTOR, 3).count(4000) == 3
    assert threads_for(dense(8, 1024, 1024, 4), VECTOR, None).count(4000) is None


def test_what_the_program_set_stays_also_when_it_comes_later():
    chosen = threads_for(dense(8, 1024, 1024, 4), VECTOR, None)
    chosen.use(4000)
    assert torch.get_num_threads() == 4
    torch.set_num_threads(3)
    for rows in (1, 4000):
        chosen.use(rows)
        assert torch.get_num_threads() == 3
