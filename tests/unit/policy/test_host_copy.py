"""Weights of a GPU, copied to where NumPy acts by them."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from rlframe.policy.torch.flat import FlatParameters
from rlframe.policy.torch.host_copy import HostCopy, fits


def test_arrays_follow_the_tensors_when_told_to() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    FlatParameters(model.parameters())
    copy = HostCopy(model.state_dict())
    before = dict(copy.arrays)
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.add_(1)
    assert not np.array_equal(copy.arrays["0.weight"], model[0].weight.detach().numpy())
    copy.refresh()
    assert {name: array.dtype for name, array in copy.arrays.items()}["1.num_batches_tracked"] == np.int64
    for name, tensor in model.state_dict().items():
        np.testing.assert_array_equal(copy.arrays[name], tensor.numpy())
        assert copy.arrays[name] is before[name], "an actor holds it"


def test_tensors_of_one_buffer_are_copied_together() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    assert len(HostCopy(model.state_dict())._buffers) == 4
    FlatParameters(model.parameters())
    assert len(HostCopy(model.state_dict())._buffers) == 1


def test_views_keep_their_places() -> None:
    whole = torch.arange(24.0).reshape(4, 6)
    views = {"turned": whole.T, "part": whole[1:3, ::2], "one": whole[2, 3], "none": torch.zeros(0)}
    for name, array in HostCopy(views).arrays.items():
        np.testing.assert_array_equal(array, views[name].numpy())


def test_convolutions_and_large_networks_stay_where_they_are() -> None:
    assert fits(nn.Linear(64, 64).state_dict())
    assert not fits(nn.Conv2d(4, 8, 3).state_dict())
    assert not fits(nn.Linear(2048, 2048).state_dict())
