"""Array functions against numbers worked out by hand and against torch."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest

from rlframe.utils.memory import aligned_array, concat_aligned
from rlframe.utils.numpy import (
    convert_to_numpy,
    fc,
    huber_loss,
    l2_loss,
    lstm,
    make_action_immutable,
    one_hot,
    relu,
    sigmoid,
    softmax,
)


def test_sigmoid_is_right_and_does_not_overflow():
    assert np.allclose(sigmoid(np.array([-1000.0, 0.0, np.log(3.0), 1000.0])), [0.0, 0.5, 0.75, 1.0])
    assert sigmoid(np.array(0.25), derivative=True) == 0.1875


def test_softmax_sums_to_one_along_the_axis():
    x = np.array([[0.0, np.log(3.0)], [1000.0, 1000.0]])
    assert np.allclose(softmax(x), [[0.25, 0.75], [0.5, 0.5]])
    assert np.allclose(softmax(x, axis=0).sum(axis=0), 1.0)
    assert softmax(np.array([0.0, -1000.0]), epsilon=1e-6).min() == 1e-6


def test_relu_and_its_leak():
    assert relu(np.array([-2.0, 3.0])).tolist() == [0.0, 3.0]
    assert relu(np.array([-2.0, 3.0]), alpha=0.1).tolist() == [-0.2, 3.0]


def test_one_hot_takes_depth_and_values():
    assert one_hot([0, 2], depth=4).tolist() == [[1, 0, 0, 0], [0, 0, 1, 0]]
    assert one_hot(np.array([[1], [0]])).tolist() == [[[0, 1]], [[1, 0]]]
    assert one_hot([1], 2, on_value=5.0, off_value=-1.0).tolist() == [[-1, 5]]
    with pytest.raises(ValueError, match=r"\[0, 2\)"):
        one_hot([2], depth=2)


def test_huber_and_l2_loss_by_hand():
    assert huber_loss(np.array([0.5, -1.0, -3.0])).tolist() == [0.125, 0.5, 2.5]
    assert huber_loss(np.array([3.0]), delta=2.0).tolist() == [4.0]
    assert l2_loss(np.array([3.0, 4.0])) == 12.5


def test_fc_takes_either_layout():
    x, w, b = np.array([[1.0, 2.0]]), np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]]), np.array([0.5, 0.0, 0.0])
    assert fc(x, w, b).tolist() == [[1.5, 2.0, 3.0]]
    assert fc(x, w.T, framework="torch").tolist() == [[1.0, 2.0, 3.0]]


def test_lstm_agrees_with_torch():
    torch = pytest.importorskip("torch")
    layer = torch.nn.LSTM(3, 4, batch_first=True)
    x = torch.randn(2, 5, 3)
    wanted, (hidden, cell) = layer(x)
    # torch's gates are input, forget, candidate, output.
    order = np.r_[0:4, 8:12, 4:8, 12:16]
    weights = torch.cat([layer.weight_ih_l0, layer.weight_hh_l0], dim=1).t().detach().numpy()[:, order]
    biases = (layer.bias_ih_l0 + layer.bias_hh_l0).detach().numpy()[order]
    got, (cell_got, hidden_got) = lstm(x, weights, biases, forget_bias=0.0)
    assert np.allclose(got, wanted.detach(), atol=1e-6)
    assert np.allclose(cell_got, cell[0].detach(), atol=1e-6)
    assert np.allclose(hidden_got, hidden[0].detach(), atol=1e-6)
    by_time, _ = lstm(x.transpose(0, 1), weights, biases, (cell_got * 0, hidden_got * 0), True, 0.0)
    assert np.allclose(by_time.swapaxes(0, 1), got, atol=1e-6)


def test_convert_to_numpy_goes_through_structures():
    torch = pytest.importorskip("torch")
    Pair = namedtuple("Pair", "a b")
    x = {"t": torch.ones(2, requires_grad=True), "n": (np.zeros(1), [torch.tensor(3)]), "p": Pair(1, "s"), "x": None}
    got = convert_to_numpy(x)
    assert isinstance(got["t"], np.ndarray)
    assert got["t"].tolist() == [1, 1]
    assert got["n"][1] == [3]
    assert type(got["n"][1][0]) is int, "a number, as what has no dimension is in RLlib"
    assert convert_to_numpy(torch.tensor(0.5, requires_grad=True), reduce_type=True) == 0.5
    assert got["p"] == Pair(1, "s")
    assert got["x"] is None
    assert convert_to_numpy(np.zeros(1), reduce_type=True).dtype == np.float32
    assert convert_to_numpy([torch.tensor([1])], reduce_type=True)[0].dtype == np.int32


def test_make_action_immutable_locks_every_leaf():
    action = {"a": np.zeros(2), "b": (np.zeros(1), 3)}
    make_action_immutable(action)
    for leaf in (action["a"], action["b"][0]):
        with pytest.raises(ValueError, match="read-only"):
            leaf[0] = 1


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8])
def test_aligned_arrays_begin_at_multiples_of_64_bytes(dtype):
    for size in (1, 7, 1000):
        array = aligned_array(size, dtype)
        assert array.shape == (size,)
        assert array.dtype == dtype
        assert array.ctypes.data % 64 == 0


def test_concat_aligned_joins_along_rows_or_time():
    parts = [np.ones((2, 3), np.float32), np.zeros((1, 3), np.float32)]
    joined = concat_aligned(parts)
    assert joined.ctypes.data % 64 == 0
    assert np.array_equal(joined, np.concatenate(parts))
    turned = [part.T.copy() for part in parts]
    assert np.array_equal(concat_aligned(turned, time_major=True), np.concatenate(turned, axis=1))
    assert concat_aligned([np.zeros(1, np.int32), np.zeros(1, np.float64)]).dtype == np.float64
    assert concat_aligned([]).size == 0
