"""What losses of users import for TensorFlow computes what its PyTorch sibling does."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete

pytest.importorskip("tensorflow")
pytest.importorskip("torch")

import torch

from rlframe.policy.tf_policy import TFPolicy
from rlframe.utils import tf_ops, tf_utils, torch_utils
from rlframe.utils.quiet_tf import tf

RNG = np.random.default_rng(3)
Y, PRED = RNG.normal(size=50).astype(np.float32), RNG.normal(size=50).astype(np.float32)
HOLES = np.array([[1.0, -np.inf, 3.0], [2.0, 2.0, -np.inf]], np.float32)


@pytest.mark.parametrize(
    ("name", "arrays", "more"),
    [
        ("explained_variance", (Y, PRED), ()),
        ("explained_variance", (Y, Y + 0.1 * PRED), ()),
        ("explained_variance", (np.ones(5, np.float32), PRED[:5]), ()),
        ("huber_loss", (3 * Y,), ()),
        ("huber_loss", (3 * Y,), (2.5,)),
        ("l2_loss", (Y,), ()),
        ("reduce_mean_ignore_inf", (HOLES,), ()),
        ("reduce_mean_ignore_inf", (HOLES,), (1,)),
        ("reduce_mean_ignore_inf", (np.maximum(HOLES, tf.float32.min),), (1,)),
        ("one_hot", (np.array([0, 2, 1]),), (Discrete(3),)),
        ("one_hot", (np.array([[0, 2], [1, 1]]),), (MultiDiscrete([2, 3]),)),
    ],
)
def test_both_frameworks_compute_the_same(name, arrays, more):
    ours = getattr(tf_ops, name)(*map(tf.constant, arrays), *more)
    theirs = getattr(torch_utils, name)(*map(torch.tensor, arrays), *more)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-6)


def test_other_spaces_have_no_one_hot_codes():
    with pytest.raises(ValueError, match="wanted Discrete or MultiDiscrete"):
        tf_utils.one_hot(tf.constant([1]), Box(-1, 1, (1,)))


def test_each_gradient_is_clipped_for_itself():
    large, small, unused = tf.Variable([30.0, 40.0]), tf.Variable([0.3, 0.4]), tf.Variable([1.0])

    class Optimizer:
        def compute_gradients(self, loss, var_list):
            return list(zip(tape.gradient(loss, var_list), var_list, strict=True))

    for limit, wanted in ((5.0, [3.0, 4.0]), (None, [30.0, 40.0])):
        with tf.GradientTape() as tape:
            loss = tf_utils.l2_loss(large) + tf_utils.l2_loss(small)
        pairs = tf_utils.minimize_and_clip(Optimizer(), loss, [large, small, unused], limit)
        assert [variable is v for (_, variable), v in zip(pairs, (large, small), strict=True)] == [True, True]
        np.testing.assert_allclose(pairs[0][0], wanted, rtol=1e-6)
        np.testing.assert_allclose(pairs[1][0], [0.3, 0.4], rtol=1e-6)


def test_functions_of_tensors_take_and_return_arrays():
    @tf_utils.make_tf_callable(TFPolicy.get_session(None), dynamic_shape=True)
    def twice(x, *, more):
        assert tf.is_tensor(x)
        assert x.dtype == tf.float32
        return {"twice": 2 * x + more["c"], "name": "n"}

    made = twice(np.arange(3.0), more={"c": np.float32(1)})
    assert type(made["twice"]) is np.ndarray
    assert made["twice"].tolist() == [1.0, 3.0, 5.0]
    assert made["name"] == "n"
    with pytest.raises(ValueError, match="wanted None"):
        tf_utils.make_tf_callable(object())


def test_deterministic_actions_have_no_likelihoods():
    assert tf_utils.zero_logps_from_actions((tf.zeros((4, 2)), tf.zeros(4))).numpy().tolist() == [0.0] * 4
