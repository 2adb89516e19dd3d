import numpy as np

from rlframe.models.repeated_values import RepeatedValues


def test_unbatch_all_leaves_the_padding_out():
    values = RepeatedValues({"x": np.arange(6).reshape(2, 3)}, lengths=np.array([1.0, 2.0]), max_len=3)
    assert values.unbatch_all() == [[{"x": 0}], [{"x": 3}, {"x": 4}]]


def test_unbatch_repeat_dim_keeps_the_batch_and_the_padding():
    items = RepeatedValues((np.arange(6).reshape(2, 3),), lengths=[1, 2], max_len=3).unbatch_repeat_dim()
    assert [item[0].tolist() for item in items] == [[0, 3], [1, 4], [2, 5]]


def test_unbatch_all_makes_lists_of_the_lists_within():
    inner = RepeatedValues(np.arange(8).reshape(2, 2, 2), lengths=np.array([[1, 2], [2, 1]]), max_len=2)
    outer = RepeatedValues({"x": inner, "y": (np.arange(4).reshape(2, 2),)}, lengths=[2, 1], max_len=2)
    assert outer.unbatch_all() == [[{"x": [0], "y": (0,)}, {"x": [2, 3], "y": (1,)}], [{"x": [4, 5], "y": (2,)}]]
    assert repr(inner).startswith("RepeatedValues(values=")
