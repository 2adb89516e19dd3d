"""Optimisers of TensorFlow 1 that a policy holds and calls itself, as copies of RLlib's SAC do."""

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from rlframe.agents.pg import PGTrainer
from rlframe.agents.pg.pg_tf_policy import PGTFPolicy
from rlframe.models.tf.tf_modelv2 import TFModelV2
from rlframe.utils.framework import try_import_tf

tf1, tf, _ = try_import_tf()


class OfKeras(TFModelV2):
    """A model of Keras' layers."""

    def __init__(self, *args):
        super().__init__(*args)
        inputs = tf.keras.layers.Input(self.obs_space.shape)
        self.base_model = tf.keras.Model(inputs, tf.keras.layers.Dense(self.num_outputs)(inputs))

    def forward(self, input_dict, state, seq_lens):
        return self.base_model(input_dict["obs"]), state


class OwnOptimizer:
    """A mixin that makes an optimiser of its own."""

    def __init__(self, config):
        self.own_optimizer = tf1.train.AdamOptimizer(learning_rate=config["lr"])


def gradients(policy, optimizer, loss):
    pairs = policy.own_optimizer.compute_gradients(loss, var_list=policy.model.base_model.trainable_variables)
    policy.pairs = [(tf.clip_by_norm(gradient, 1.0), variable) for gradient, variable in pairs if gradient is not None]
    return policy.pairs


def apply(policy, optimizer, grads_and_vars):
    return policy.own_optimizer.apply_gradients(policy.pairs)


def loss(policy, model, dist_class, batch):
    logits, _ = model.from_batch(batch)
    return -tf.reduce_mean(dist_class(logits, model).logp(batch["actions"]))


def test_an_optimizer_that_the_policy_holds_steps_the_models_weights():
    own = PGTFPolicy.with_updates(
        name="OwnOptimizers",
        loss_fn=loss,
        gradients_fn=gradients,
        apply_gradients_fn=apply,
        mixins=[OwnOptimizer],
        before_init=lambda policy, obs_space, action_space, config: OwnOptimizer.__init__(policy, config),
    )
    trainer = PGTrainer.with_updates(default_policy=own)(
        config={"env": "CartPole-v1", "framework": "tf", "train_batch_size": 20, "lr": 0.01, "seed": 0,
                "model": {"custom_model": OfKeras}}
    )  # fmt: skip
    before = trainer.get_weights()["default_policy"]
    for _ in range(2):
        trainer.train()
    after = trainer.get_weights()["default_policy"]
    moved = [name for name, array in before.items() if not np.array_equal(array, after[name])]
    assert moved
    assert max(float(np.abs(after[name] - before[name]).max()) for name in moved) == pytest.approx(0.02, abs=0.005)
