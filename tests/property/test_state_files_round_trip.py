"""Any state that can be written comes back the same, to the bit and to the type."""

import math
import tempfile
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rlframe.utils.state_files import read_state, write_state

DTYPES = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?", "c8", "<U3", ">i4", "M8[s]"]
arrays = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(np.dtype(dtype), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
)
tensors = st.sampled_from([torch.ones(2, 3).T, torch.tensor(2), torch.zeros(0, 3, dtype=torch.int64)])
leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), arrays, tensors)
names = ["$array", "$float", "$tensor", "$tuple", "$pairs", "$", "$$x", "a/b", "a", "state", "1"]
keys = st.one_of(st.text(max_size=4), st.sampled_from(names))
any_keys = st.one_of(keys, st.integers(0, 2), st.none(), st.tuples(st.integers(0, 2), keys))


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    items = st.lists(inner, max_size=3)
    return items | items.map(tuple) | st.dictionaries(keys, inner, max_size=3) | st.dictionaries(any_keys, inner)


states = st.dictionaries(keys, st.recursive(leaves, containers), max_size=4)


def same(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray):
        return (
            isinstance(right, np.ndarray)
            and (left.dtype, left.shape) == (right.dtype, right.shape)
            and left.tobytes() == right.tobytes()
            and right.flags.writeable
        )
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    return bool(left == right)


@given(states)
def test_write_then_read_returns_the_same_state(state):
    with tempfile.TemporaryDirectory() as directory, mock.patch("os.fsync"):
        write_state(f"{directory}/state", state, {"version": "1"})
        restored, meta = read_state(f"{directory}/state")
    assert same(state, restored)
    assert meta == {"version": "1"}


def test_tensors_that_numpy_has_no_type_for_are_named(tmp_path):
    conjugate = torch.complex(torch.ones(2), torch.ones(2)).conj()
    write_state(tmp_path / "state", {"a": conjugate})
    assert torch.equal(read_state(tmp_path / "state")[0]["a"], conjugate)
    for other in (torch.ones(2, dtype=torch.bfloat16), torch.eye(2).to_sparse()):
        with pytest.raises(ValueError, match=r"Got a tensor of torch.* at state\.a\.b; wanted a dense one"):
            write_state(tmp_path / "state", {"a": {"b": other}})
