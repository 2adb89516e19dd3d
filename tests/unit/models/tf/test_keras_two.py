"""Models of programs that were written for Keras 2, which Keras 3 would refuse."""

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from rlframe.models.catalog import ModelCatalog
from rlframe.models.tf.fcnet import FullyConnectedNetwork
from rlframe.models.tf.recurrent_net import RecurrentNetwork
from rlframe.models.tf.tf_modelv2 import TFModelV2

OBS_SPACE = gym.spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = gym.spaces.Discrete(2)


class MaskedLSTM(RecurrentNetwork):
    """A functional model with TensorFlow's functions on symbolic tensors, as RLlib's example of a memory has it."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        layers, cells = tf.keras.layers, np.int64(4)
        seen = layers.Input((None, *obs_space.shape), name="seen")
        lens = layers.Input((), dtype=tf.int32, name="lens")
        states = [layers.Input(shape=cells, name="h"), layers.Input(shape=4, name="c")]  # as programs write `(4)`
        features = tf.concat([seen, tf.square(seen)], axis=-1)
        features = tf.reshape(features, [-1, tf.shape(seen)[1], features.shape.as_list()[-1]])
        out, *after = layers.LSTM(cells, return_sequences=True, return_state=True)(
            inputs=features, mask=tf.sequence_mask(lens), initial_state=states
        )
        outputs = [layers.Dense(np.int64(num_outputs))(out), layers.Dense(1.0)(out)]
        self.rnn = tf.keras.Model([seen, lens, *states], [*outputs, *after])

    def get_initial_state(self):
        return [np.zeros(4, np.float32)] * 2

    def forward_rnn(self, inputs, state, seq_lens):
        out, self._values, *after = self.rnn([inputs, seq_lens, *state])
        return out, after

    def value_function(self):
        return tf.reshape(self._values, [-1])


def test_functions_of_tensorflow_on_symbolic_tensors_make_a_model_that_masks():
    model = ModelCatalog.get_model_v2(OBS_SPACE, ACTIONS, 2, {"custom_model": MaskedLSTM}, framework="tf")
    obs = tf.constant(np.random.default_rng(0).normal(size=(6, 3)), tf.float32)
    states = [tf.zeros((2, 4)), tf.zeros((2, 4))]
    out, (h, _) = model({"obs": obs}, states, tf.constant([3, 1]))
    assert out.shape == (6, 2)
    assert model.rnn.outputs[1].shape == (None, None, 1)
    _, (alone, _) = model({"obs": obs[3:4]}, [states[0][:1], states[1][:1]], tf.constant([1]))
    np.testing.assert_allclose(h[1], alone[0], rtol=1e-5)  # the second sequence ends behind its first step


def test_a_copy_of_such_a_model_computes_the_same():
    seen = tf.keras.layers.Input((3,))
    model = tf.keras.Model(seen, tf.keras.layers.Dense(2)(tf.concat([seen, tf.square(seen)], axis=-1)))
    copy = tf.keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    np.testing.assert_allclose(copy(tf.ones((1, 3))), model(tf.ones((1, 3))), rtol=1e-6)


def test_a_sequence_that_begins_by_joining_inputs_has_weights_once_it_is_called_and_learns():
    dense = [tf.keras.layers.Dense(4, activation="relu"), tf.keras.layers.Dense(1)]
    layers = [tf.keras.layers.Concatenate(axis=1), *dense]
    joined = tf.keras.Sequential(layers)
    obs, actions = tf.keras.layers.Input((3,)), tf.keras.layers.Input((2,))
    model = tf.keras.Model([obs, actions], joined([obs, actions]))
    assert [tuple(weight.shape) for weight in model.variables] == [(5, 4), (4,), (4, 1), (1,)]
    rows = [tf.ones((6, 3)), tf.zeros((6, 2))]
    by_hand = layers[2](layers[1](tf.concat(rows, 1)))
    np.testing.assert_allclose(model(rows), by_hand, rtol=1e-6)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(joined(rows))
    np.testing.assert_array_equal(tape.gradient(loss, joined.trainable_variables[-1]), [6.0])


def test_sequences_on_numbers_are_keras_own():
    rows = [tf.ones((6, 3)), tf.zeros((6, 2))]
    joined = tf.keras.Sequential([tf.keras.layers.Concatenate(), tf.keras.layers.Dense(1)])
    assert joined(rows).shape == (6, 1)
    assert [layer["class_name"] for layer in joined.get_config()["layers"]] == ["Concatenate", "Dense"]

    class JoinsItself(tf.keras.Sequential):
        def call(self, inputs):
            return super().call(tf.concat(inputs, 1))

    assert JoinsItself([tf.keras.layers.Dense(1)])(rows).shape == (6, 1)


def test_units_that_are_no_whole_number_stay_an_error():
    with pytest.raises(ValueError, match="units"):
        tf.keras.layers.Dense(2.5)


class RegistersLate(TFModelV2):
    """Makes its layers when it is called first, and has attributes with names that the base might have."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self._registered, self._weights = False, None

    def forward(self, input_dict, state, seq_lens):
        if not self._registered:
            made = tf.keras.layers.Dense(self.num_outputs, name="late")
            made.build((None, 3))
            self._made = {"weights": made}
            self.register_variables(made.variables)
            self._registered = True
        return self._made["weights"](input_dict["obs"]), state


def test_attributes_of_a_program_do_not_hide_those_of_the_base():
    model = ModelCatalog.get_model_v2(OBS_SPACE, ACTIONS, 2, {"custom_model": RegistersLate}, framework="tf")
    assert model.variables() == []
    model({"obs": tf.ones((1, 3))})
    assert [tuple(variable.shape) for variable in model.variables()] == [(3, 2), (2,)]


def test_layers_on_sequences_of_images_take_any_number_of_steps_and_agree_with_one_step_each():
    ModelCatalog.get_model_v2(OBS_SPACE, ACTIONS, 2, {"custom_model": MaskedLSTM}, "tf")  # has Keras 3 take it
    layers = tf.keras.layers
    images = layers.Input((None, 5, 4, 3))
    convolution = layers.Conv2D(2, [3, 3])
    features = layers.TimeDistributed(layers.Flatten())(layers.TimeDistributed(convolution)(images))
    model = tf.keras.Model(images, features)
    traced = tf.function(model, input_signature=[tf.TensorSpec((None, None, 5, 4, 3))])
    seen = np.random.default_rng(0).random((2, 3, 5, 4, 3), np.float32)
    assert features.shape[2] == 12
    one_by_one = np.stack([np.reshape(convolution(seen[:, t]), (2, 12)) for t in range(3)], 1)
    np.testing.assert_allclose(traced(seen), one_by_one, rtol=1e-5, atol=1e-6)
    assert traced(seen[:, :1]).shape == (2, 1, 12)


def test_functions_of_tensorflow_take_symbols_that_were_multiplied_by_a_number():
    ModelCatalog.get_model_v2(OBS_SPACE, ACTIONS, 2, {"custom_model": MaskedLSTM}, framework="tf")  # has Keras accept
    seen = tf.keras.layers.Input((3,))
    model = tf.keras.Model(seen, tf.ones_like(seen[:, :2] * 0.0))
    np.testing.assert_array_equal(model(np.zeros((4, 3), np.float32)), np.ones((4, 2)))


def test_training_may_be_an_input_of_a_model_and_stand_behind_its_inputs():
    layers = tf.keras.layers
    seen, training = layers.Input((3,)), layers.Input((), batch_size=1, dtype=tf.bool)
    out = layers.Dropout(0.5)(layers.BatchNormalization(momentum=0.5)(seen, training=training[0]), training=training[0])
    model = tf.keras.Model([seen, training], out)
    rows = tf.constant(np.random.default_rng(0).normal(5.0, 1.0, (6, 3)), tf.float32)
    traced = tf.function(lambda rows, training: model([rows, training[None]]))
    mean = model.layers[-2].moving_mean

    still = traced(rows, tf.constant(False))
    np.testing.assert_allclose(still, rows, rtol=1e-2)
    assert not np.any(mean.numpy())
    learned = traced(rows, tf.constant(True))
    assert np.any(learned.numpy() == 0.0)
    np.testing.assert_allclose(mean.numpy(), 0.5 * rows.numpy().mean(axis=0), rtol=1e-5)
    np.testing.assert_array_equal(
        tf.keras.Model(seen, layers.Dropout(0.5)(seen))(rows, [], None), rows
    )  # as copies of RLlib's example call it: with states and lengths


def test_arguments_and_attributes_of_layers_are_those_of_keras_2():
    class Scaled(tf.keras.layers.Layer):
        def build(self, shape):
            self.scale = self.add_weight("scale", (int(shape[-1]),), initializer="ones")
            self.shift = self.add_variable("shift", shape=[1], initializer="zeros")

        def call(self, inputs):
            return inputs * self.scale + self.shift

    layers = tf.keras.layers
    seen = layers.Input((4,), name="policy/seen")
    dense = layers.Dense(3, name="policy/fc_1", dynamic=False)
    out = layers.BatchNormalization(fused=True)(dense(np.full(4, 2.0, np.float32) * Scaled()(seen)))
    mean = tf.keras.backend.mean(out, axis=1, keepdims=True)
    assert (dense.input_shape, dense.output_shape) == ((None, 4), (None, 3))
    assert (seen.get_shape().ndims, seen.shape.rank, seen.shape[1:].num_elements()) == (2, 2, 4)
    assert tf.keras.Model(seen, [out, mean], name="policy/net")(tf.ones((5, 4)))[1].shape == (5, 1)
    assert layers.LSTM(2, time_major=False)(tf.ones((5, 3, 4))).shape == (5, 2)
    with pytest.warns(UserWarning, match="input_shape"):  # Keras' own
        first = layers.Dense(3, batch_input_shape=(None, 4))
    assert tf.keras.Sequential([first, layers.Dense(2, name="v/out")])(tf.ones((5, 4))).shape == (5, 2)
    with pytest.raises(ValueError, match="time_major"):
        layers.LSTM(2, time_major=True)


@pytest.mark.parametrize("made", [lambda kind: kind(lr=0.5, decay=1.0), lambda kind: kind(0.5, decay=1.0)])
def test_optimisers_take_lr_and_decay_and_minimise_functions(made):
    optimizer, variable = made(tf.keras.optimizers.SGD), tf.Variable(1.0)
    for _ in range(2):  # rates 0.5 / (1 + 0) and 0.5 / (1 + 1)
        optimizer.minimize(lambda: 2.0 * variable, [variable])
    assert variable.numpy() == pytest.approx(1.0 - 2.0 * (0.5 + 0.25))
    optimizer = tf.keras.optimizers.Adam(lr=0.5)
    optimizer.lr = 0.25
    assert float(optimizer.lr) == 0.25


class AroundNetwork(TFModelV2):
    """A functional model of a default network that is called on a symbolic input, as in RLlib's parametric actions."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        seen = tf.keras.layers.Input(shape=obs_space.shape, name="seen")
        self.inner = FullyConnectedNetwork(obs_space, action_space, num_outputs, {"fcnet_hiddens": [4]}, "inner")
        outputs, _ = self.inner({"obs": seen})
        self.whole = tf.keras.Model(seen, [tf.square(outputs), self.inner.value_function()])

    def forward(self, input_dict, state, seq_lens):
        outputs, self._values = self.whole(input_dict["obs"])
        return outputs, state

    def value_function(self):
        return self._values


def test_networks_on_symbolic_inputs_are_part_of_a_functional_model_and_learn():
    model = ModelCatalog.get_model_v2(OBS_SPACE, ACTIONS, 2, {"custom_model": AroundNetwork}, framework="tf")
    obs = tf.constant(np.random.default_rng(0).normal(size=(6, 3)), tf.float32)
    for _ in range(2):
        outputs, _ = model({"obs": obs})
        values = model.value_function()
        alone, _ = model.inner({"obs": obs})
        np.testing.assert_allclose(outputs, tf.square(alone), rtol=1e-6)
        np.testing.assert_allclose(values, model.inner.value_function(), rtol=1e-6)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model({"obs": obs})[0]) + tf.reduce_sum(model.value_function())
        weights = model.trainable_variables()
        assert len(weights) == 6  # a hidden layer, outputs and values
        for weight, slope in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.1 * slope)
