"""A model of a user's own in TensorFlow."""

from rlframe.models.tf.tf_modelv2 import TFModelV2
from rlframe.utils.quiet_tf import tf


class Plain(TFModelV2):
    """Keras layers behind an observation."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        seen = tf.keras.layers.Input((3,))
        hidden = tf.keras.layers.Dense(5, "tanh")(seen)
        outputs, value = tf.keras.layers.Dense(self.num_outputs)(hidden), tf.keras.layers.Dense(1)(hidden)
        self.base_model = tf.keras.Model(seen, [outputs, value])

    def forward(self, input_dict, state, seq_lens):
        outputs, self.made = self.base_model(input_dict["obs"])
        return outputs, state

    def value_function(self):
        return tf.reshape(self.made, [-1])
