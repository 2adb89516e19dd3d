"""Users' distributions in TensorFlow: actions come out of the traced forward pass, or one operation at a time."""

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from rlframe.agents.pg import PGTFPolicy, PGTrainer
from rlframe.models.catalog import ModelCatalog
from rlframe.models.tf.tf_action_dist import Categorical

OBS_SPACE = gym.spaces.Box(-10, 10, (4,), np.float32)
OBS = np.linspace(-1, 1, 200 * 4, dtype=np.float32).reshape(200, 4)


class Counted(Categorical):
    """Categorical, and how often Python ran its methods."""

    calls = 0

    def sample(self):
        type(self).calls += 1
        return super().sample()

    def deterministic_sample(self):
        type(self).calls += 1
        return super().deterministic_sample()


class Eager(Counted):
    """Reads numbers out of its tensors, which no graph can do."""

    def sample(self):
        assert self.inputs.numpy().shape[1] == 3
        return super().sample()


def make(dist, **overrides):
    ModelCatalog.register_custom_action_dist("own", dist)
    config = {**PGTrainer.get_default_config(), "framework": "tf", "seed": 0, "model": {"custom_action_dist": "own"}}
    dist.calls = 0
    return PGTFPolicy(OBS_SPACE, gym.spaces.Discrete(3), {**config, **overrides})


def act(policy, explore=True):
    actions, _, columns = policy.compute_actions(OBS, explore=explore, timestep=10)
    return actions, columns["action_logp"], columns["action_dist_inputs"]


def check(policy):
    seen = set()
    for _ in range(5):
        actions, logp, logits = act(policy)
        wanted = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        np.testing.assert_allclose(logp, wanted[np.arange(len(OBS)), actions], rtol=1e-4)
        seen.add(tuple(actions))
    assert len(seen) == 5  # new numbers at each call
    actions, logp, logits = act(policy, explore=False)
    np.testing.assert_array_equal(actions, logits.argmax(1))
    np.testing.assert_array_equal(logp, 0)


def test_drawn_in_the_traced_forward_pass():
    policy = make(Counted)
    before = Counted.calls
    check(policy)
    assert Counted.calls == before + 2  # once with exploration, once without


@pytest.mark.parametrize(
    ("dist", "overrides"),
    [(Eager, {}), (Counted, {"framework": "tf2"}), (Counted, {"exploration_config": {"type": "Soft"}})],
)
def test_drawn_by_single_operations(dist, overrides):
    if overrides.get("exploration_config"):
        from rlframe.exploration.exploration import StochasticSampling

        class Soft(StochasticSampling):
            pass

        overrides = {"exploration_config": {"type": Soft}}
    policy = make(dist, **overrides)
    before = dist.calls
    check(policy)
    assert dist.calls >= before + 6


def test_random_steps_are_uniform():
    policy = make(Counted, exploration_config={"type": "StochasticSampling", "random_timesteps": 1000})
    before = Counted.calls
    _, logp, _ = act(policy)
    np.testing.assert_allclose(logp, -np.log(3), rtol=1e-6)
    assert Counted.calls == before


def test_an_error_of_the_distribution_is_its_own():
    class Broken(Categorical):
        def sample(self):
            raise ZeroDivisionError("in the user's own lines")

    policy = make(Broken)
    with pytest.raises(ZeroDivisionError, match="own lines"):
        act(policy)
    assert tf.executing_eagerly()
