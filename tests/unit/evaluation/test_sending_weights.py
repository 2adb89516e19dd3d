"""How weights travel to remote workers; no runtime is started."""

import numpy as np
import pytest
import ray

from rlframe.evaluation.cluster import as_argument


@pytest.fixture
def stored(monkeypatch):
    put = []
    monkeypatch.setattr(ray, "put", lambda value: put.append(value) or f"reference {len(put)}")
    return put


def test_small_weights_travel_within_the_call(stored):
    weights = {"one": {"w": np.zeros((64, 64), np.float32)}, "other": {"w": np.zeros((96, 128), np.float32)}}
    assert as_argument(weights, 16) is weights  # 16 KiB and 48 KiB
    assert not stored


@pytest.mark.parametrize(
    ("weights", "receivers"),
    [
        ({"one": {"w": np.zeros((64, 64), np.float32)}}, 17),
        ({"one": {"w": np.zeros((128, 128), np.float32)}, "other": {"b": np.zeros(1, np.float32)}}, 1),
        ({"one": {"of a user's own": [0.0]}}, 1),
        ({"one": [0.0]}, 1),
    ],
    ids=["many receivers", "large", "no arrays", "no names"],
)
def test_others_are_put_into_the_object_store_once(stored, weights, receivers):
    assert as_argument(weights, receivers) == "reference 1"
    assert len(stored) == 1
    assert stored[0] is weights
