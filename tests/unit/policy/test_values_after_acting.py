"""`model.value_function()` speaks of the observations that actions were asked for, NumPy or not."""

from __future__ import annotations

import copy
import importlib
import threading
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from rlframe.agents.ppo.ppo import DEFAULT_CONFIG
from rlframe.data.sample_batch import SampleBatch
from rlframe.models.preprocessors import get_preprocessor
from tests.helpers.frameworks import TORCH_FIRST

BOX = Box(-1, 1, (3,), np.float32)
MASKED = Dict({"action_mask": Box(0, 1, (2,), np.float32), "seen": BOX})


def make(framework: str, space: Any = BOX, **model: Any) -> Any:
    module = importlib.import_module(f"rlframe.agents.ppo.ppo_{framework}_policy")
    policy_class = getattr(module, {"torch": "PPOTorchPolicy", "tf": "PPOTFPolicy"}[framework])
    config = {**DEFAULT_CONFIG, "framework": framework, "seed": 1}
    config["model"] = {**DEFAULT_CONFIG["model"], "fcnet_hiddens": [8], **model}
    return policy_class(get_preprocessor(space)(space).observation_space, Discrete(2), config)


def rows(policy: Any, count: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).random((count, *policy.observation_space.shape), np.float32) + 0.1


@pytest.mark.parametrize("framework", TORCH_FIRST)
@pytest.mark.parametrize("space", [BOX, MASKED], ids=["box", "masked"])
def test_values_are_those_of_the_rows_acted_on(framework: str, space: Any) -> None:
    policy = make(framework, space)
    policy.model({"obs": policy.to_tensors(rows(policy, 5))})
    obs = rows(policy, 2, seed=1)
    _, _, extra = policy.compute_actions(obs)
    copy.deepcopy(policy.model)
    outputs = policy.to_numpy(policy.model.last_output())
    np.testing.assert_allclose(outputs, extra["action_dist_inputs"], atol=1e-6)
    np.testing.assert_allclose(policy.to_numpy(policy.model.value_function()), extra["vf_preds"], atol=1e-6)
    policy.model({"obs": policy.to_tensors(rows(policy, 5))})
    assert policy.model.value_function().shape == (5,)


def test_another_thread_that_acts_changes_nothing_for_one_that_learns() -> None:
    policy = make("torch")
    policy.model({"obs": policy.to_tensors(rows(policy, 5))})
    thread = threading.Thread(target=policy.compute_actions, args=(rows(policy, 2),))
    thread.start()
    thread.join()
    assert policy.model.value_function().shape == (5,)


def test_models_with_memory_say_where_values_are() -> None:
    policy = make("torch", use_lstm=True, lstm_cell_size=4)
    policy.compute_actions(rows(policy, 2))
    for read in (policy.model.value_function, policy.model.last_output):
        with pytest.raises(ValueError, match="vf_preds"):
            read()


def test_values_after_a_traced_learner_step_are_those_of_its_rows() -> None:
    pytest.importorskip("tensorflow")
    policy = make("tf")
    policy.compute_actions(rows(policy, 2))
    obs = rows(policy, 6)
    batch = SampleBatch({"obs": obs, "actions": np.zeros(6, int), "action_dist_inputs": np.zeros((6, 2), np.float32)})
    for key in ("advantages", "value_targets", "vf_preds", "action_logp"):
        batch[key] = np.zeros(6, np.float32)
    policy.learn_on_batch(batch)
    values = policy.to_numpy(policy.model.value_function())
    policy.model({"obs": policy.to_tensors(obs)})
    np.testing.assert_allclose(values, policy.to_numpy(policy.model.value_function()))
    assert values.shape == (6,)
