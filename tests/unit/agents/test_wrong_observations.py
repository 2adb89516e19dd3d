"""What is said to those who act by hand, with something that is no observation, or no state."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from rlframe.agents.ppo import PPOTrainer
from rlframe.utils.errors import EnvError, NonFiniteError

CONFIG = {"num_workers": 0, "min_iter_time_s": 0, "log_sys_usage": False, "seed": 1}
ONE = Box(-1, 1, (4,))
PARTS = Dict(a=Box(-1, 1, (2,)), b=Discrete(3))


def trainer(space, **model):
    config = {
        **CONFIG,
        "observation_space": space,
        "action_space": Discrete(2),
        "model": {"fcnet_hiddens": [8], **model},
    }
    return PPOTrainer(config)


@pytest.mark.parametrize(
    ("space", "obs", "error", "message"),
    [
        (ONE, np.zeros(3, np.float32), EnvError, r"is a float32 array of shape \(3,\); wanted one observation"),
        (ONE, np.zeros((1, 4), np.float32), EnvError, r"of shape \(1, 4\); wanted one observation, without batch"),
        (ONE, None, EnvError, "NoneType"),
        (ONE, "abc", EnvError, "obs is"),
        (ONE, {"a": 1}, EnvError, "dict"),
        (ONE, (np.zeros(4, np.float32), {}), EnvError, r"what reset\(\) returns; pass the observation alone"),
        (ONE, [0.0, np.nan, 0.0, 0.0], NonFiniteError, "NaN or infinity"),
        (PARTS, {"a": np.zeros(2, np.float32)}, EnvError, '"?b"?'),
        (PARTS, {"a": np.zeros(5, np.float32), "b": 1}, EnvError, r'obs\["a"\]'),
        (PARTS, [1, 2], EnvError, "list"),
    ],
)
def test_what_is_no_observation_is_named(space, obs, error, message):
    made = trainer(space)
    actor = made.make_actor()
    actor.reset()
    for act in (made.compute_single_action, made.get_policy().compute_single_action, actor.act):
        with pytest.raises(error, match=message):
            act(obs)


@pytest.mark.parametrize(
    ("states", "shapes"),
    [
        ([np.zeros(3), np.zeros(8)], r"\[\(1, 3\), \(1, 8\)\]"),
        ([np.zeros((1, 8))] * 2, r"\[\(1, 1, 8\), \(1, 1, 8\)\]"),
        ([np.zeros(8)] * 3, r"\[\(1, 8\), \(1, 8\), \(1, 8\)\]"),
    ],
)
def test_what_is_no_state_is_named(states, shapes):
    made = trainer(ONE, use_lstm=True, lstm_cell_size=8)
    with pytest.raises(ValueError, match=rf"got recurrent states of shapes {shapes}; wanted \[\(1, 8\), \(1, 8\)\]"):
        made.compute_single_action(np.zeros(4, np.float32), states)
    made.compute_single_action(np.zeros(4, np.float32), np.zeros((2, 8), np.float32))  # rows are a list of states
