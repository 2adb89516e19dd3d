"""A robot arm: a plain `tf.keras.Model` as the custom model, a distribution of its own, metrics from infos, evaluation.

Uses RLlib as translearn/safeMotions does (safemotions/train.py, evaluate.py, model/keras_fcnet_last_layer_activation.py,
model/custom_action_dist.py): a Keras model whose `call` takes a batch and returns (logits, [], extra outputs) registered
with the catalogue, keyword-only arguments of its constructor from `custom_model_config`, a `TFActionDistribution` subclass,
operations named in infos gathered by callbacks, `tune.run(restore=, trial_name_creator...)`-like options, and evaluation by
`get_trainable_cls` with the local worker's environment.
"""

from collections import defaultdict

import gym
import numpy as np
import ray
from rlframe import tune
from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.models import ModelCatalog
from rlframe.models.action_dist import ActionDistribution
from rlframe.models.tf.misc import normc_initializer
from rlframe.models.tf.tf_action_dist import TFActionDistribution
from rlframe.models.utils import get_activation_fn
from rlframe.policy.sample_batch import SampleBatch
from rlframe.tune.registry import get_trainable_cls
from rlframe.utils.annotations import override
from rlframe.utils.framework import try_import_tf

tf1, tf, tfv = try_import_tf()


class SafeMotionsEnv(gym.Env):
    def __init__(self, experiment_name, **kwargs):
        self.observation_space = gym.spaces.Box(-1, 1, (4,), np.float32)
        self.action_space = gym.spaces.Box(np.float32(-1), np.float32(1), (2,), np.float32)

    def reset(self):
        self.t, self.x, self.goal = 0, np.zeros(2), np.random.uniform(-0.5, 0.5, 2)
        return np.append(self.x, self.goal).astype(np.float32)

    def step(self, action):
        assert (np.abs(action) <= 1.0001).all()
        self.t += 1
        self.x = np.clip(self.x + 0.1 * action, -1, 1)
        distance = float(np.linalg.norm(self.x - self.goal))
        done = self.t >= 20
        info = {"average": {"distance": distance}, "max": {"speed": float(np.abs(action).max())}, "sum": {"steps": 1}}
        if done:
            info.update(episode_length=self.t, trajectory_length=self.t, termination_reason=0 if distance < 0.2 else 2)
        return np.append(self.x, self.goal).astype(np.float32), -distance, done, info


class LastLayerNetwork(tf.keras.Model if tf else object):
    def __init__(self, input_space, action_space, num_outputs=None, *, name="", fcnet_hiddens=(), fcnet_activation=None,
                 vf_share_layers=False, last_layer_activation=None, no_log_std_activation=False, **kwargs):  # fmt: skip
        super().__init__(name=name)
        activation = get_activation_fn(fcnet_activation)
        last = get_activation_fn(last_layer_activation)
        assert last is not None and no_log_std_activation

        def hidden(layer, scope):
            for i, size in enumerate(fcnet_hiddens, 1):
                layer = tf.keras.layers.Dense(
                    size, name=f"{scope}_{i}", activation=activation, kernel_initializer=normc_initializer(1.0)
                )(layer)
            return layer

        inputs = tf.keras.layers.Input(shape=(int(np.prod(input_space.shape)),), name="observations")
        body = hidden(inputs, "fc")
        actions = tf.keras.layers.Dense(num_outputs // 2, name="fc_out_actions", activation=last)(body)
        log_std = tf.keras.layers.Dense(num_outputs // 2, name="fc_out_log_std")(body)
        logits = tf.keras.layers.Concatenate(axis=1)([actions, log_std])
        value = tf.keras.layers.Dense(1, name="value_out")(body if vf_share_layers else hidden(inputs, "fc_value"))
        self.base_model = tf.keras.Model(inputs, [logits, value])

    def call(self, input_dict):
        logits, value = self.base_model(input_dict[SampleBatch.OBS])
        return logits, [], {SampleBatch.VF_PREDS: tf.reshape(value, [-1])}


class ClippedNormal(TFActionDistribution):
    """A normal distribution whose samples are clipped to the bounds."""

    def __init__(self, inputs, model, low=-1.0, high=1.0):
        self.mean, self.log_std = tf.split(inputs, 2, axis=1)
        self.std = tf.exp(self.log_std)
        self.low, self.high = low, high
        super().__init__(inputs, model)

    @override(ActionDistribution)
    def deterministic_sample(self):
        return tf.clip_by_value(self.mean, self.low, self.high)

    @override(ActionDistribution)
    def logp(self, x):
        normal = -0.5 * tf.square((tf.cast(x, tf.float32) - self.mean) / self.std) - self.log_std - 0.919
        return tf.math.reduce_sum(normal, axis=-1)

    @override(ActionDistribution)
    def kl(self, other):
        assert isinstance(other, ClippedNormal)
        parts = other.log_std - self.log_std - 0.5
        parts += (tf.square(self.std) + tf.square(self.mean - other.mean)) / (2.0 * tf.square(other.std))
        return tf.reduce_sum(parts, axis=1)

    @override(ActionDistribution)
    def entropy(self):
        return tf.reduce_sum(self.log_std + 1.419, axis=1)

    @override(TFActionDistribution)
    def _build_sample_op(self):
        return tf.clip_by_value(self.mean + self.std * tf.random.normal(tf.shape(self.mean)), self.low, self.high)

    @staticmethod
    @override(ActionDistribution)
    def required_model_output_shape(action_space, model_config):
        return np.prod(action_space.shape) * 2


METRIC_OPS = ["sum", "average", "max", "min"]


class CustomTrainCallbacks(DefaultCallbacks):
    def on_episode_start(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        episode.user_data["op"] = {op: defaultdict(list) for op in METRIC_OPS}

    def on_episode_step(self, *, worker, base_env, episode, env_index, **kwargs):
        episode_info = episode.last_info_for()
        if episode_info:
            for op in list(episode_info.keys() & METRIC_OPS):
                for k, v in episode_info[op].items():
                    episode.user_data["op"][op][k].append(v)

    def on_episode_end(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        functions = {"sum": sum, "average": np.mean, "max": max, "min": min}
        for op in METRIC_OPS:
            for k, v in episode.user_data["op"][op].items():
                episode.custom_metrics[k + "_" + op] = functions[op](v)
        info = episode.last_info_for()
        episode.custom_metrics["episode_length"] = float(info["episode_length"])
        episode.custom_metrics["success_rate"] = 1.0 if info["termination_reason"] == 0 else 0.0

    def on_train_result(self, *, trainer, result, **kwargs):
        result["callback_ok"] = True


def main():
    ModelCatalog.register_custom_model("keras_fcnet_last_layer_activation", LastLayerNetwork)
    ModelCatalog.register_custom_action_dist("clipped_normal", ClippedNormal)
    tune.register_env(SafeMotionsEnv.__name__, lambda config_args: SafeMotionsEnv(**config_args))
    ray.init(dashboard_host="127.0.0.1", include_dashboard=False, ignore_reinit_error=True, num_gpus=0, num_cpus=2)
    config = {
        "model": {
            "conv_filters": None,
            "fcnet_hiddens": [16, 8],
            "fcnet_activation": "elu",
            "use_lstm": False,
            "custom_model": "keras_fcnet_last_layer_activation",
            "custom_action_dist": "clipped_normal",
            "custom_model_config": {
                "fcnet_hiddens": [16, 8],
                "fcnet_activation": "elu",
                "last_layer_activation": "tanh",
                "no_log_std_activation": True,
            },
        },
        "gamma": 0.99,
        "use_gae": True,
        "lambda": 1.0,
        "kl_coeff": 0.2,
        "train_batch_size": 120,
        "sgd_minibatch_size": 60,
        "num_sgd_iter": 2,
        "lr": 5e-4,
        "batch_mode": "complete_episodes",
        "normalize_actions": True,
        "evaluation_interval": None,
        "evaluation_num_episodes": 2,
        "evaluation_parallel_to_training": False,
        "evaluation_config": {"explore": False, "rollout_fragment_length": 1},
        "evaluation_num_workers": 0,
        "env": "SafeMotionsEnv",
        "env_config": {"experiment_name": "arm", "ray_version": ray.__version__},
        "framework": "tf",
        "num_workers": 0,
        "callbacks": CustomTrainCallbacks,
    }
    analysis = tune.run(
        "PPO",
        config=config,
        local_dir="results",
        name="arm",
        stop={"training_iteration": 2},
        checkpoint_freq=1,
        checkpoint_at_end=True,
        keep_checkpoints_num=1,
        max_failures=0,
        restore=None,
    )
    result = analysis.trials[0].last_result
    assert result["callback_ok"] and {"distance_average_mean", "speed_max_max"} <= result["custom_metrics"].keys()
    assert result["custom_metrics"]["steps_sum_mean"] == 20
    agent = get_trainable_cls("PPO")(env="SafeMotionsEnv", config={**config, "explore": False})
    agent.restore(analysis.get_last_checkpoint(analysis.trials[0]))
    env = SafeMotionsEnv("arm")
    obs, done = env.reset(), False
    while not done:
        action = agent.compute_single_action(obs)
        obs, reward, done, info = env.step(action)
    assert info["episode_length"] == 20
    ray.shutdown()
    print("ok program_robot_last_layer")


if __name__ == "__main__":
    main()
