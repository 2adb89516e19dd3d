"""What models are tried with."""

from types import SimpleNamespace

import numpy as np
import pytest
import tree
from gymnasium import spaces

from rlframe.models.preprocessors import get_preprocessor
from rlframe.models.probe import probe_inputs, try_model

HUGE = np.iinfo(np.int64).max
WIDE = [
    spaces.Box(0, HUGE, (2,), np.int64),
    spaces.Box(-np.finfo(np.float64).max, np.finfo(np.float64).max, (2,), np.float64),
    spaces.Dict({"wide": spaces.Box(3, HUGE, (2,), np.int64), "kind": spaces.Discrete(2, start=5)}),
]


@pytest.mark.parametrize("space", WIDE)
def test_spaces_as_wide_as_their_type_are_probed_as_well(space):
    model = SimpleNamespace(view_requirements={})
    for part in tree.flatten(probe_inputs(model, space)["obs"]):
        assert np.isfinite(part).all()


def test_a_model_may_read_the_last_action_without_asking_for_it():
    space = spaces.Box(-1, 1, (3,), np.float32)
    model = SimpleNamespace(view_requirements={}, action_space=spaces.Discrete(2))
    assert try_model(model, space, lambda inputs: inputs["prev_actions"].tolist()) == [0, 0]
    assert model.view_requirements["prev_actions"].shift == -1
    with pytest.raises(KeyError, match="next_actions"):
        try_model(model, space, lambda inputs: inputs["next_actions"])


def test_boxes_are_zeros_whatever_their_bounds():
    space = spaces.Dict(
        {"index": spaces.Box(-1e20, 1e20, (2,), np.float32), "near": spaces.Box(1, 2, (1,), np.float32)}
    )
    space = get_preprocessor(space)(space).observation_space
    obs = probe_inputs(SimpleNamespace(view_requirements={}), space)["obs"]
    np.testing.assert_array_equal(obs, [[0, 0, 1], [0, 0, 1]])
