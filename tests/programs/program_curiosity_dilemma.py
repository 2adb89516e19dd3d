"""A social dilemma with curiosity: PPO put together anew from its parts, with an auxiliary loss and a model of Keras.

Uses RLlib as eugenevinitsky/sequential_social_dilemma_games does (algorithms/ppo_aux.py, models/actor_critic_lstm.py):
`build_tf_policy` with hooks made by `functools.partial`, mixins of its own in `before_loss_init`, a recurrent model
(`RecurrentTFModelV2`, `add_time_dimension`), further fetches of the model beside actions, and `build_trainer` with the
hooks of RLlib 0.8: `make_policy_optimizer`, `after_optimizer_step`, `after_train_result`.
"""

from functools import partial

import numpy as np
import ray
from gym import spaces
from rlframe.agents.ppo.ppo import (
    DEFAULT_CONFIG, choose_policy_optimizer, update_kl, validate_config, warn_about_bad_reward_scales,
)
from rlframe.agents.ppo.ppo_policy import (
    KLCoeffMixin, ValueNetworkMixin, clip_gradients, kl_and_loss_stats, postprocess_ppo_gae, setup_config,
)
from rlframe.agents.ppo.ppo_tf_policy import ppo_surrogate_loss, vf_preds_fetches
from rlframe.agents.trainer_template import build_trainer
from rlframe.env.multi_agent_env import MultiAgentEnv
from rlframe.models import ModelCatalog
from rlframe.models.modelv2 import ModelV2
from rlframe.models.tf.misc import normc_initializer
from rlframe.models.tf.recurrent_tf_modelv2 import RecurrentTFModelV2
from rlframe.policy.rnn_sequencing import add_time_dimension
from rlframe.policy.tf_policy import EntropyCoeffSchedule, LearningRateSchedule
from rlframe.policy.tf_policy_template import build_tf_policy
from rlframe.utils import merge_dicts, try_import_tf
from rlframe.utils.annotations import override

tf = try_import_tf()
CELL, ENC = 8, "enc_obs"


class Harvest(MultiAgentEnv):
    """Apples grow back the slower the fewer are left."""

    observation_space = spaces.Dict({"curr_obs": spaces.Box(0, 1, (3,), np.float32)})
    action_space = spaces.Discrete(3)

    def __init__(self, config=None):
        super().__init__()
        self.agents = ["agent-0", "agent-1"]

    def observe(self):
        return {a: {"curr_obs": np.array([self.apples / 10, i, self.t / 20], np.float32)} for i, a in enumerate(self.agents)}

    def reset(self):
        self.t, self.apples = 0, 10.0
        return self.observe()

    def step(self, actions):
        self.t += 1
        rewards = {}
        for agent, action in actions.items():
            eaten = min(float(action == 1), self.apples)
            self.apples -= eaten
            rewards[agent] = eaten
        self.apples = min(10.0, self.apples * 1.1)
        return self.observe(), rewards, {"__all__": self.t >= 20}, {a: {} for a in self.agents}


class CuriosityLSTM(RecurrentTFModelV2):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        shape = obs_space.original_space.spaces["curr_obs"].shape
        inputs = tf.keras.layers.Input(shape=(None, *shape), name="inputs")
        h_in = tf.keras.layers.Input(shape=(CELL,), name="h")
        c_in = tf.keras.layers.Input(shape=(CELL,), name="c")
        encoded = tf.keras.layers.Dense(4, activation="tanh", name="encoder")(inputs)
        predicted = tf.keras.layers.Dense(4, name="predictor")(encoded)
        lstm_out, h, c = tf.keras.layers.LSTM(CELL, return_sequences=True, return_state=True, name="lstm")(
            encoded, initial_state=[h_in, c_in]
        )
        logits = tf.keras.layers.Dense(num_outputs, activation=tf.keras.activations.linear, name="logits")(lstm_out)
        value = tf.keras.layers.Dense(1, name="value_out", kernel_initializer=normc_initializer(0.01))(lstm_out)
        self.rnn_model = tf.keras.Model([inputs, h_in, c_in], [logits, value, encoded, predicted, h, c])
        self.register_variables(self.rnn_model.variables)
        self.rnn_model.summary()

    @override(ModelV2)
    def forward(self, input_dict, state, seq_lens):
        new_dict = {"obs": {k: add_time_dimension(v, seq_lens) for k, v in input_dict["obs"].items()}}
        new_dict.update({"prev_action": add_time_dimension(input_dict["prev_actions"], seq_lens)})
        output, new_state = self.forward_rnn(new_dict, state, seq_lens)
        return tf.reshape(output, [-1, self.num_outputs]), new_state

    def forward_rnn(self, input_dict, state, seq_lens):
        logits, self._value, encoded, predicted, h, c = self.rnn_model([input_dict["obs"]["curr_obs"], *state])
        self._encoded, self._predicted = tf.reshape(encoded, [-1, 4]), tf.reshape(predicted, [-1, 4])
        return logits, [h, c]

    def true_encoded_observations(self):
        return self._encoded

    def predicted_encoded_observations(self):
        return self._predicted

    def value_function(self):
        return tf.reshape(self._value, [-1])

    @override(ModelV2)
    def get_initial_state(self):
        return [np.zeros(CELL, np.float32), np.zeros(CELL, np.float32)]


class ConfigInitializerMixIn:
    def __init__(self, config):
        options = config["model"]["custom_options"]
        self.aux_loss_weight = options["aux_loss_weight"]
        self.aux_reward_clip = options["aux_reward_clip"]


def setup_curiosity_loss(logits, model, policy, train_batch):
    error = model.predicted_encoded_observations()[:-1] - model.true_encoded_observations()[1:]
    return tf.reduce_mean(tf.square(error)) * policy.aux_loss_weight


def curiosity_postprocess(policy, batch):
    truth = batch[ENC]
    surprise = np.square(truth[1:] - truth[:-1]).mean(axis=1) if len(truth) > 1 else np.zeros(0)
    reward = np.clip(np.append(surprise, 0.0), -policy.aux_reward_clip, policy.aux_reward_clip).astype(np.float32)
    batch["total_aux_reward"] = reward
    batch["reward_without_aux"] = batch["rewards"]
    batch["rewards"] = batch["rewards"] + reward
    return batch


def loss_with_aux(setup_aux_loss_fn, policy, model, dist_class, train_batch):
    loss = ppo_surrogate_loss(policy, model, dist_class, train_batch)
    policy.aux_loss = setup_aux_loss_fn(None, model, policy, train_batch)
    return loss + policy.aux_loss


def extra_fetches(aux_fetches_fn, policy):
    fetches = vf_preds_fetches(policy)
    fetches.update(aux_fetches_fn(policy))
    return fetches


def extra_stats(policy, train_batch):
    return {
        **kl_and_loss_stats(policy, train_batch),
        "var_gnorm": tf.linalg.global_norm([x for x in policy.model.trainable_variables()]),
        "total_aux_reward": tf.reduce_mean(train_batch["total_aux_reward"]),
        "aux_loss": policy.aux_loss * policy.aux_loss_weight,
    }


def postprocess_ppo_aux(aux_fn, policy, sample_batch, other_agent_batches=None, episode=None):
    return postprocess_ppo_gae(policy, aux_fn(policy, sample_batch))


def build_model(policy, obs_space, action_space, config):
    _, logit_dim = ModelCatalog.get_action_dist(action_space, config["model"])
    policy.model = ModelCatalog.get_model_v2(
        obs_space, action_space, logit_dim, config["model"], name="func", framework="tf"
    )
    return policy.model


def setup_mixins(setup_aux_mixins_fn, policy, obs_space, action_space, config):
    ValueNetworkMixin.__init__(policy, obs_space, action_space, config)
    KLCoeffMixin.__init__(policy, config)
    EntropyCoeffSchedule.__init__(policy, config["entropy_coeff"], config["entropy_coeff_schedule"])
    LearningRateSchedule.__init__(policy, config["lr"], config["lr_schedule"])
    setup_aux_mixins_fn(policy, obs_space, action_space, config)


def main():
    ModelCatalog.register_custom_model("curiosity_lstm", CuriosityLSTM)
    options = {"aux_loss_weight": 0.1, "aux_reward_clip": 1.0}
    aux_config = merge_dicts(DEFAULT_CONFIG, {"model": {"custom_options": options}})
    policy = build_tf_policy(
        name="PPOAuxTFPolicy",
        get_default_config=lambda: aux_config,
        loss_fn=partial(loss_with_aux, setup_curiosity_loss),
        make_model=build_model,
        stats_fn=extra_stats,
        extra_action_fetches_fn=partial(extra_fetches, lambda pi: {ENC: pi.model.true_encoded_observations()}),
        postprocess_fn=partial(postprocess_ppo_aux, curiosity_postprocess),
        gradients_fn=clip_gradients,
        before_init=setup_config,
        before_loss_init=partial(setup_mixins, lambda pi, obs, act, config: ConfigInitializerMixIn.__init__(pi, config)),
        mixins=[LearningRateSchedule, EntropyCoeffSchedule, KLCoeffMixin, ValueNetworkMixin, ConfigInitializerMixIn],
    )
    trainer_class = build_trainer(
        name="CuriosityPPOTrainer",
        default_policy=policy,
        make_policy_optimizer=choose_policy_optimizer,
        default_config=aux_config,
        validate_config=validate_config,
        after_optimizer_step=update_kl,
        after_train_result=warn_about_bad_reward_scales,
    )
    ray.init(num_cpus=2)
    space = (Harvest.observation_space, Harvest.action_space)
    trainer = trainer_class(
        env=Harvest,
        config={
            "framework": "tf", "num_workers": 0, "train_batch_size": 80, "sgd_minibatch_size": 40, "num_sgd_iter": 2,
            "grad_clip": 40.0, "entropy_coeff_schedule": [[0, 0.01], [1000, 0.001]], "lr_schedule": [[0, 1e-3], [1000, 1e-4]],
            "model": {"custom_model": "curiosity_lstm", "max_seq_len": 10, "custom_options": options},
            "multiagent": {
                "policies": {a: (None, *space, {}) for a in ("agent-0", "agent-1")},
                "policy_mapping_fn": lambda agent_id: agent_id,
            },
        },
    )
    for _ in range(2):
        result = trainer.train()
    learner = result["info"]["learner"]["agent-0"]
    stats = learner.get("learner_stats", learner)
    assert {"var_gnorm", "aux_loss", "total_aux_reward", "kl", "vf_loss"} <= stats.keys(), stats.keys()
    assert stats["total_aux_reward"] > 0 and stats["aux_loss"] > 0
    policy = trainer.get_policy("agent-0")
    assert policy.cur_lr < 1e-3 and policy.kl_coeff != DEFAULT_CONFIG["kl_coeff"] or policy.cur_lr < 1e-3
    ray.shutdown()
    print("ok program_curiosity_dilemma")


if __name__ == "__main__":
    main()
