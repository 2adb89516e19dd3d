"""Variables that models have where nobody looks for them: by name, as in TensorFlow 1, and in objects of their own."""

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from rlframe.models.catalog import ModelCatalog
from rlframe.models.spec import CustomNetwork
from rlframe.models.tf.check_model import check_model
from rlframe.models.tf.networks import TFCustomNetwork
from rlframe.models.tf.tf_modelv2 import TFModelV2
from rlframe.utils.framework import try_import_tf

tf1, _, _ = try_import_tf()
OBS_SPACE = gym.spaces.Box(-1, 1, (3,), np.float32)
OBS = tf.constant(np.random.default_rng(0).normal(size=(5, 3)), tf.float32)


class ByName(TFModelV2):
    """As programs for TensorFlow 1 have it: variables and layers are made where they are used."""

    _registered = False

    def forward(self, input_dict, state, seq_lens):
        with tf1.variable_scope("trunk", reuse=tf1.AUTO_REUSE):
            mixed = input_dict["obs"] @ tf1.get_variable("mix", shape=[3, 4])
            hidden = tf1.layers.dense(mixed, 4, activation=tf.nn.tanh, name="hidden")
            hidden = tf1.layers.batch_normalization(hidden, training=input_dict["is_training"])
            outputs = tf1.layers.dense(hidden, self.num_outputs)
            self._values = tf.squeeze(tf1.layers.dense(hidden, 1), 1)
        if not self._registered:
            self.register_variables(tf1.get_collection(tf1.GraphKeys.TRAINABLE_VARIABLES, scope=".+/trunk/.+"))
            self._registered = True
        return outputs, state

    def value_function(self):
        return self._values


class OfAnObject(TFModelV2):
    """Layers lie in an object, which is searched by nobody."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.net = type("Net", (), {"layer": tf.keras.layers.Dense(self.num_outputs)})()

    def forward(self, input_dict, state, seq_lens):
        return self.net.layer(input_dict["obs"]), state


class New(TFModelV2):
    """Makes a layer at each call."""

    def forward(self, input_dict, state, seq_lens):
        return tf.keras.layers.Dense(self.num_outputs)(input_dict["obs"]), state


def made(model_class, *, values=False):
    model = ModelCatalog.get_model_v2(OBS_SPACE, gym.spaces.Discrete(2), 2, {"custom_model": model_class}, "tf")
    check_model(model, OBS_SPACE, 2, values=values)
    return model


def test_what_a_forward_pass_makes_by_name_is_made_once_and_is_the_models():
    model, other = made(ByName, values=True), made(ByName, values=True)
    layers = ("hidden", "dense", "dense_1")
    assert sorted(model.trainable_variables(as_dict=True)) == sorted(
        ["trunk/mix", "trunk/batch_normalization/gamma", "trunk/batch_normalization/beta"]
        + [f"trunk/{layer}/{part}" for layer in layers for part in ("kernel", "bias")]
    )
    assert model.variables(as_dict=True).keys() - model.trainable_variables(as_dict=True).keys() == {
        "trunk/batch_normalization/moving_mean", "trunk/batch_normalization/moving_variance"
    }  # fmt: skip
    traced = tf.function(lambda obs: model({"obs": obs})[0])
    np.testing.assert_allclose(traced(OBS), model({"obs": OBS})[0], rtol=1e-4, atol=1e-6)
    assert len(model.variables()) == 11
    assert not {variable.ref() for variable in model.variables()} & {variable.ref() for variable in other.variables()}


def test_every_variable_by_name_gets_a_gradient_and_statistics_follow_training():
    model = made(ByName, values=True)
    with tf.GradientTape() as tape:
        outputs, _ = model({"obs": OBS, "is_training": True})
        loss = tf.reduce_sum(outputs**2) + tf.reduce_sum(model.value_function())
    gradients = tape.gradient(loss, model.trainable_variables())
    assert all(gradient is not None for gradient in gradients)
    assert np.any(model.variables(as_dict=True)["trunk/batch_normalization/moving_mean"].numpy())


def test_outside_of_a_forward_pass_names_are_looked_up_nowhere():
    made(ByName)
    assert tf1.get_variable("alone", shape=[2]).shape == (2,)
    with pytest.raises(RuntimeError, match="outside of a model's forward"):
        tf.function(lambda: tf1.get_variable("traced", shape=[2]))()
    with pytest.raises(RuntimeError, match=r"layers\.dense was called outside of a model's forward"):
        tf1.layers.dense(OBS, 2)


def test_variables_in_objects_of_a_models_own_are_found_by_what_it_computes_with():
    model = made(OfAnObject)
    assert list(model.variables(as_dict=True)) == ["registered.0", "registered.1"]
    spec = CustomNetwork({"obs": 3}, 2, {"custom_model": OfAnObject})
    assert list(TFCustomNetwork(spec).named_variables()) == ["model.registered.0", "model.registered.1"]


def test_a_model_that_makes_new_variables_at_each_call_is_refused():
    with pytest.raises(ValueError, match=r"New: each call makes new variables, such as .*; make layers and"):
        made(New)


def test_variables_that_a_loss_makes_by_name_are_the_policys_and_the_same_each_time():
    from rlframe.agents.pg import PGTrainer
    from rlframe.agents.pg.pg_tf_policy import PGTFPolicy

    def loss(policy, model, dist_class, batch):
        with tf1.variable_scope("penalty"):
            policy.penalty = tf1.get_variable("weight", initializer=0.5, trainable=False)
        policy.made = [*getattr(policy, "made", []), policy.penalty]
        logits, _ = model.from_batch(batch)
        return -tf.reduce_mean(dist_class(logits, model).logp(batch["actions"])) * policy.penalty

    mine = PGTrainer.with_updates(default_policy=PGTFPolicy.with_updates(name="Penalised", loss_fn=loss))
    trainer = mine(config={"env": "CartPole-v1", "framework": "tf", "train_batch_size": 20,
                           "model": {"fcnet_hiddens": [4]}})  # fmt: skip
    trainer.train()
    policy = trainer.get_policy()
    assert len(policy.made) > 1  # the first run, and the trace
    assert all(variable is policy.penalty for variable in policy.made)
    assert float(policy.penalty.numpy()) == 0.5
