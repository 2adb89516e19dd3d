"""Trains on a network of rails: a Keras model that masks actions, a policy with a learning rate that warms up, a YAML's options.

Uses RLlib as wullli/flatlander does (flatlander/models/global_obs_model.py, common/transformer_ppo_policy.py): one-name
`try_import_tf`, `custom_options`, `tf.maximum(tf.math.log(mask), tf.float32.min)`, `variables()` overridden, a mixin that
overrides `on_global_var_update` and `optimizer`, `get_policy_class=lambda c: ...` and `register_trainable`.
"""

import gym
import numpy as np
import ray
from rlframe import tune
from rlframe import Policy, TFPolicy
from rlframe.agents.ppo import PPOTrainer
from rlframe.agents.ppo.ppo_tf_policy import KLCoeffMixin, PPOTFPolicy, ValueNetworkMixin
from rlframe.env.multi_agent_env import MultiAgentEnv
from rlframe.models import ModelCatalog
from rlframe.models.tf.tf_modelv2 import TFModelV2
from rlframe.policy.tf_policy import EntropyCoeffSchedule
from rlframe.tune import register_trainable
from rlframe.utils import DeveloperAPI, override, try_import_tf

tf = try_import_tf()


class Rails(MultiAgentEnv):
    """Trains of a line; at its ends one may not go on."""

    observation_space = gym.spaces.Dict(
        {"obs": gym.spaces.Box(0, 1, (6, 1), np.float32), "available_actions": gym.spaces.Box(0, 1, (3,), np.float32)}
    )
    action_space = gym.spaces.Discrete(3)

    def __init__(self, config):
        super().__init__()
        self.n = config["number_of_agents"]

    def observe(self, handles):
        return {
            h: {
                "obs": np.eye(6, dtype=np.float32)[self.at[h]][:, None],
                "available_actions": np.array([self.at[h] > 0, 1, self.at[h] < 5], np.float32),
            }
            for h in handles
        }

    def reset(self):
        self.t, self.at, self.open = 0, [h % 6 for h in range(self.n)], set(range(self.n))
        return self.observe(range(self.n))

    def step(self, actions):
        self.t += 1
        for h, action in actions.items():
            self.at[h] += int(action) - 1
            assert 0 <= self.at[h] <= 5, "a masked action was chosen"
        arrived = {h for h in actions if self.at[h] == 5}
        self.open -= arrived
        done = {**{h: h in arrived for h in actions}, "__all__": not self.open or self.t >= 20}
        return (
            self.observe(actions),
            {h: 1.0 if h in arrived else -0.05 for h in actions},
            done,
            {h: {} for h in actions},
        )


class GlobalObsModel(TFModelV2):
    def import_from_h5(self, h5_file):
        pass

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        assert isinstance(action_space, gym.spaces.Discrete), "Only 'gym.spaces.Discrete' action spaces are supported."
        self._options = model_config["custom_options"]
        self._mask_unavailable_actions = self._options.get("mask_unavailable_actions", False)
        obs_space = obs_space.original_space["obs"] if self._mask_unavailable_actions else obs_space
        observations = tf.keras.layers.Input(shape=obs_space.shape)
        out = tf.keras.layers.Dense(8, activation="relu")(tf.keras.layers.Flatten()(observations))
        logits = tf.keras.layers.Dense(units=action_space.n)(out)
        baseline = tf.keras.layers.Dense(units=1)(out)
        self._model = tf.keras.Model(inputs=observations, outputs=[logits, baseline])
        self.register_variables(self._model.variables)

    def forward(self, input_dict, state, seq_lens):
        obs = input_dict["obs"]["obs"] if self._mask_unavailable_actions else input_dict["obs"]
        logits, baseline = self._model(obs)
        self.baseline = tf.reshape(baseline, [-1])
        if self._mask_unavailable_actions:
            logits = logits + tf.maximum(tf.math.log(input_dict["obs"]["available_actions"]), tf.float32.min)
        return logits, state

    def variables(self):
        return self._model.variables

    def value_function(self):
        return self.baseline


@DeveloperAPI
class TransformerLearningRateSchedule:
    @DeveloperAPI
    def __init__(self, d_model, warmup_steps):
        self.cur_lr = 0.00005
        self.cur_step = 1.0
        self.d_model_size, self.warmup_steps = d_model, warmup_steps

    @override(Policy)
    def on_global_var_update(self, global_vars):
        super(TransformerLearningRateSchedule, self).on_global_var_update(global_vars)
        self.cur_step = global_vars["timestep"] + 1
        rate = min(self.cur_step**-0.5, self.cur_step * self.warmup_steps**-1.5)
        self.cur_lr = self.d_model_size**-0.5 * rate * 0.1
        for optimizer in getattr(self, "_optimizers", []):
            optimizer.learning_rate = self.cur_lr

    @override(TFPolicy)
    def optimizer(self):
        return tf.keras.optimizers.Adam(self.cur_lr, beta_1=0.9, beta_2=0.98, epsilon=1e-9)


def setup_mixins(policy, obs_space, action_space, config):
    ValueNetworkMixin.__init__(policy, obs_space, action_space, config)
    KLCoeffMixin.__init__(policy, config)
    EntropyCoeffSchedule.__init__(policy, config["entropy_coeff"], config["entropy_coeff_schedule"])
    options = config["model"]["custom_options"]
    TransformerLearningRateSchedule.__init__(
        policy, options["n_features_per_node"], options.get("warmup_steps", 100000)
    )


TTFPPOPolicy = PPOTFPolicy.with_updates(
    name="TTFPPOPolicy",
    before_loss_init=setup_mixins,
    mixins=[TransformerLearningRateSchedule, EntropyCoeffSchedule, KLCoeffMixin, ValueNetworkMixin],
)
register_trainable("TTFPPO", PPOTrainer.with_updates(name="TTFPPOTrainer", get_policy_class=lambda c: TTFPPOPolicy))


def main():
    ModelCatalog.register_custom_model("global_obs_model", GlobalObsModel)
    tune.register_env("flatland_sparse", lambda config: Rails(config))
    ray.init(num_cpus=2)
    analysis = tune.run(
        "TTFPPO",
        stop={"timesteps_total": 200},
        checkpoint_at_end=True,
        local_dir="flatland",
        config={
            "env": "flatland_sparse",
            "env_config": {"number_of_agents": 3},
            "framework": "tf",
            "num_workers": 0,
            "train_batch_size": 100,
            "sgd_minibatch_size": 50,
            "num_sgd_iter": 2,
            "vf_clip_param": 10.0,
            "horizon": 50,
            "no_done_at_end": False,
            "vf_share_layers": True,
            "model": {
                "custom_model": "global_obs_model",
                "custom_options": {"mask_unavailable_actions": True, "n_features_per_node": 11, "warmup_steps": 1000},
            },
        },
    )
    result = analysis.trials[0].last_result
    learner = result["info"]["learner"]["default_policy"]
    learner = learner.get("learner_stats", learner)
    assert result["timesteps_total"] >= 200 and abs(learner["cur_lr"] - 0.00005) > 1e-6, learner["cur_lr"]
    ray.shutdown()
    print("ok program_trains_warmup")


if __name__ == "__main__":
    main()
