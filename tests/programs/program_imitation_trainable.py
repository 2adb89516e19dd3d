"""Road traffic: a Trainable of Tune owns a trainer, whose Keras model starts from weights in a file.

Uses RLlib as flow-project/flow does (flow/controllers/imitation_learning/custom_trainable.py, ppo_model.py): a subclass
of `tune.Trainable` with the methods of Ray 0.8 (`_setup`, `_train`, `_save`, `_restore`, `_log_result`, `_stop`), a
`PPOTrainer` within it, `list(trainer.get_weights().keys())[0]`, `import_policy_model_from_h5(file, policy_id=...)` and
`import_from_h5` of the model, `custom_options` that reach the model's constructor as keywords.
"""

import os

import gym
import numpy as np
import ray
import tensorflow as tf
from rlframe import tune
from rlframe.agents import ppo
from rlframe.models import ModelCatalog
from rlframe.models.tf.tf_modelv2 import TFModelV2

try:
    from rlframe.agents.agent import get_agent_class
except ImportError:
    from rlframe.agents.registry import get_agent_class


class Ring(gym.Env):
    """A car keeps its distance to the one before it."""

    observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self):
        self.t, self.gap = 0, np.random.uniform(0.2, 0.8)
        return np.array([self.gap, 0.0, 1.0], np.float32)

    def step(self, action):
        self.t += 1
        self.gap = float(np.clip(self.gap - 0.1 * float(action[0]), 0, 1))
        return np.array([self.gap, float(action[0]), 1.0], np.float32), 1 - abs(self.gap - 0.5), self.t >= 20, {}


def network(inputs, num_outputs, hiddens, activation):
    layer = inputs
    for i, size in enumerate(hiddens, 1):
        layer = tf.keras.layers.Dense(size, name=f"policy_hidden_layer_{i}", activation=activation)(layer)
    policy = tf.keras.layers.Dense(num_outputs, name="policy_output_layer", activation=None)(layer)
    layer = inputs
    for i, size in enumerate(hiddens, 1):
        layer = tf.keras.layers.Dense(size, name=f"vf_hidden_layer_{i}", activation=activation)(layer)
    value = tf.keras.layers.Dense(1, name="vf_output_layer", activation=None)(layer)
    return tf.keras.Model(inputs, [policy, value])


class PPONetwork(TFModelV2):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name, **kwargs):
        super(PPONetwork, self).__init__(obs_space, action_space, num_outputs, model_config, name)
        self.h5_path = kwargs.get("h5_load_path", "")
        inp_layer = tf.keras.layers.Input(shape=obs_space.shape, name="input_layer")
        activation, hiddens = model_config.get("fcnet_activation"), model_config.get("fcnet_hiddens", [])
        self.base_model = network(inp_layer, num_outputs, hiddens, activation)
        self.register_variables(self.base_model.variables)

    def forward(self, input_dict, state, seq_lens):
        policy_out, self.value_out = self.base_model(input_dict["obs_flat"])
        return policy_out, state

    def value_function(self):
        return tf.reshape(self.value_out, [-1])

    def import_from_h5(self, import_file):
        self.base_model.load_weights(import_file)


class Imitation_PPO_Trainable(tune.Trainable):
    def _setup(self, config):
        self.trainer = ppo.PPOTrainer(env=config["env"], config=config)
        policy_id = list(self.trainer.get_weights().keys())[0]
        assert policy_id == "default_policy"
        self.trainer.import_policy_model_from_h5(config["model"]["custom_options"]["h5_load_path"], policy_id=policy_id)
        bias = self.trainer.get_policy().model.base_model.get_layer("policy_output_layer").get_weights()[1]
        assert np.allclose(bias, 0.25), bias

    def _train(self):
        return self.trainer.train()

    def _save(self, tmp_checkpoint_dir):
        return self.trainer.save_checkpoint(tmp_checkpoint_dir)  # in Ray 0.8, that was trainer._save()

    def _restore(self, checkpoint):
        self.trainer.restore(checkpoint)

    def _log_result(self, result):
        self.trainer.log_result(result)  # likewise

    def _stop(self):
        self.trainer.stop()


def main():
    h5 = os.path.abspath("imitation.weights.h5")
    imitated = network(tf.keras.layers.Input(shape=(3,)), 2, [8], "tanh")
    imitated.get_layer("policy_output_layer").set_weights([np.ones((8, 2)) * 0.01, np.full(2, 0.25)])
    imitated.save_weights(h5)
    ray.init(num_cpus=2)
    tune.register_env("ring-v0", lambda config: Ring())
    ModelCatalog.register_custom_model("PPO_loaded_weights", PPONetwork)
    config = get_agent_class("PPO")._default_config.copy()
    config.update(
        env="ring-v0", framework="tf", num_workers=0, train_batch_size=100, sgd_minibatch_size=50, num_sgd_iter=2,
        batch_mode="complete_episodes",
    )
    config["model"] = {
        "custom_model": "PPO_loaded_weights", "custom_options": {"h5_load_path": h5}, "fcnet_hiddens": [8],
        "fcnet_activation": "tanh", "vf_share_layers": False,
    }
    trials = tune.run_experiments(
        {
            "imitation": {
                "run": Imitation_PPO_Trainable, "config": config, "checkpoint_freq": 1, "checkpoint_at_end": True,
                "max_failures": 0, "stop": {"training_iteration": 2},
            }
        }
    )
    assert [t.last_result["training_iteration"] for t in trials] == [2]
    assert trials[0].last_result["timesteps_total"] >= 200 and trials[0].checkpoint is not None
    ray.shutdown()
    print("ok program_imitation_trainable")


if __name__ == "__main__":
    main()
