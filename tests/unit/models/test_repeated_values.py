import numpy as np

from rlframe.models.repeated_values import RepeatedValues


def test_unbatch_all_leaves_the_padding_out():
    values = RepeatedValues({"x": np.arange(6).reshape(2, 3)}, lengths=np.array([1.0, 2.0]), max_len=3)
    assert values.unbatch_all() == [[{"x": 0}], [{"x": 3}, {"x": 4}]]


def test_unbatch_repeat_dim_keeps_the_batch_and_the_padding():
    items = RepeatedValues((np.arange(6).reshape(2, 3),), lengths=[1, 2], max_len=3).unbatch_repeat_dim()
    assert [item[0].tolist() for item in items] == [[0, 3], [1, 4], [2, 5]]


def test_unbatch_nested_lists_keep_their_lengths():
    inner = RepeatedValues(np.arange(8).reshape(2, 2, 2), lengths=np.array([[1, 2], [2, 1]]), max_len=2)
    outer = RepeatedValues(inner, lengths=[2, 1], max_len=2)
    second = outer.unbatch_all()[0][1]
    assert (second.values.tolist(), int(second.lengths), second.max_len) == ([2, 3], 2, 2)
    assert repr(second).startswith("RepeatedValues(values=")
