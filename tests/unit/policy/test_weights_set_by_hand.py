"""Acting in NumPy sees the weights that a program sets in the framework's own way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from rlframe.agents.ppo import DEFAULT_CONFIG
from rlframe.agents.ppo.ppo import PPOTrainer
from rlframe.policy.inference import NumpyInference
from tests.helpers.frameworks import needs_tf

OBS = np.ones((2, 3), np.float32)


def make(framework: str) -> Any:
    config = {**DEFAULT_CONFIG, "framework": framework, "seed": 0, "model": {**DEFAULT_CONFIG["model"]}}
    config["model"].update(fcnet_hiddens=[4], vf_share_layers=False)
    policy = PPOTrainer.get_default_policy_class(None, config)(Box(-1, 1, (3,), np.float32), Discrete(2), config)
    assert isinstance(policy.inference, NumpyInference)
    return policy


def logits(policy: Any) -> Any:
    return policy.compute_actions(OBS, explore=False)[2]["action_dist_inputs"][0]


def test_tensors_of_torch() -> None:
    policy = make("torch")
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.fill_(1.0)
    np.testing.assert_allclose(logits(policy), 4 * np.tanh(4) + 1, rtol=1e-5)


@needs_tf
@pytest.mark.parametrize("by", ["variables", "a view in Keras", "additions"])
def test_variables_of_tensorflow(by: str) -> None:
    policy = make("tf")
    if by == "a view in Keras":
        model = policy.model.base_model
        model.set_weights([np.ones_like(array) for array in model.get_weights()])
    for variable in policy.model.trainable_variables():
        if by == "variables":
            variable.assign(np.ones(variable.shape))
        elif by == "additions":
            variable.assign_add(1.0 - variable)
    np.testing.assert_allclose(logits(policy), 4 * np.tanh(4) + 1, rtol=1e-5)
    policy.model.trainable_variables()[0].assign_sub(np.ones((4, 3)))
    np.testing.assert_allclose(logits(policy), 4 * np.tanh(1) + 1, rtol=1e-5)
