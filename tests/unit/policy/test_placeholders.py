"""Placeholders of TensorFlow 1 that mixins of policies update their variables by."""

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from rlframe.agents.ppo import PPOTrainer
from rlframe.agents.ppo.ppo_tf_policy import PPOTFPolicy
from rlframe.policy.tf.rllib_names import NoSession
from rlframe.utils.framework import get_variable, try_import_tf

tf1, tf, _ = try_import_tf()

SESSION = NoSession()


def test_a_variable_is_assigned_what_a_session_is_fed():
    variable = tf.Variable(0.5)
    number = tf1.placeholder(tf.float32, shape=(), name="number")
    update = variable.assign(number, read_value=False)
    assert float(variable) == 0.5
    assert SESSION.run(update, feed_dict={number: 2}) is None
    assert float(variable) == 2.0
    SESSION.run([update, tf1.assign_add(variable, number)], feed_dict={number: 3.0})
    assert float(variable) == 6.0


def test_what_is_made_of_placeholders_runs_anew_with_each_feed():
    rows, scale = tf1.placeholder(tf.float32, [None, 2]), tf1.placeholder_with_default(2.0, ())
    made = {"sum": tf.reduce_sum(1.0 - scale * rows, axis=1), "first": np.float32(3) * rows[0]}
    for first in (1.0, 4.0):
        ran = SESSION.run(made, feed_dict={rows: [[first, 0.0]]})
        np.testing.assert_allclose(ran["sum"], [2 - 2 * first])
        np.testing.assert_allclose(ran["first"], [3 * first, 0.0])
    np.testing.assert_allclose(SESSION.run(made["sum"], feed_dict={rows: np.ones((3, 2)), scale: 0.5}), np.ones(3))


def test_a_group_of_assignments_runs_as_one():
    variables = [tf.Variable(0.0), tf.Variable(0.0)]
    number = tf1.placeholder(tf.float32, ())
    SESSION.run(tf.group(*[variable.assign(number) for variable in variables]), feed_dict={number: 7.0})
    assert [float(variable) for variable in variables] == [7.0, 7.0]
    assert tf.group(variables[0].assign(1.0)) is None  # has run


def test_what_does_not_fit_a_placeholder_is_said():
    number, kept = tf1.placeholder(tf.float32, (), name="number"), tf.Variable(0.5)
    with pytest.raises(TypeError):
        list(number)
    with pytest.raises(ValueError, match="placeholder 'number' got no value"):
        SESSION.run(kept.assign(number))
    with pytest.raises(ValueError, match=r"placeholder 'number': got a value of shape \(2,\), wanted \(\)"):
        SESSION.run(kept.assign(number), feed_dict={number: [1.0, 2.0]})

    @tf.function
    def loss():
        return kept * number

    with pytest.raises(TypeError, match=r"got 'number' where a tensor is wanted.*read a variable"):
        loss()


class Adapted:
    """A coefficient in the way of RLlib's mixins for graphs."""

    def __init__(self, config):
        self.kl_coeff_val = 0.25
        self.kl_coeff = get_variable(0.25, tf_name="kl_coeff", framework=config["framework"])
        self._kl_coeff_placeholder = tf1.placeholder(dtype=tf.float32, name="kl_coeff")
        self._kl_coeff_update = self.kl_coeff.assign(self._kl_coeff_placeholder, read_value=False)

    def update_kl(self, sampled_kl):
        self.kl_coeff_val *= 2.0
        self.get_session().run(self._kl_coeff_update, feed_dict={self._kl_coeff_placeholder: self.kl_coeff_val})
        return self.kl_coeff_val


def test_the_loss_reads_what_a_mixin_fed_its_variable():
    def loss(policy, model, dist_class, batch):
        logits, _ = model(batch)
        return policy.kl_coeff * tf.reduce_mean(tf.square(logits))

    policy = PPOTFPolicy.with_updates(
        name="Adapted",
        loss_fn=loss,
        stats_fn=lambda policy, batch: {"kl": tf.constant(1.0), "coeff": policy.kl_coeff},
        before_loss_init=lambda policy, obs_space, action_space, config: Adapted.__init__(policy, config),
        mixins=[Adapted],
    )
    config = {
        "framework": "tf", "num_workers": 0, "train_batch_size": 40, "rollout_fragment_length": 40, "num_sgd_iter": 1,
        "sgd_minibatch_size": 40, "model": {"fcnet_hiddens": [4]}, "env": "CartPole-v1", "log_sys_usage": False,
    }  # fmt: skip
    trainer = PPOTrainer.with_updates(default_policy=policy, get_policy_class=lambda config: policy)(config)
    results = [trainer.train()["info"]["learner"]["default_policy"]["learner_stats"] for _ in range(2)]
    assert [float(stats["coeff"]) for stats in results] == [0.25, 0.5]
    assert float(trainer.get_policy().kl_coeff) == 1.0
    trainer.stop()
