"""Driving of several vehicles: A2C with a critic that sees all, as a policy made of functions, run by a config's own keys.

Uses RLlib as huawei-noah/SMARTS does (baselines/marl_benchmark: agents/maac/tf_policy.py, networks/centralized_ac.py,
run.py): `with_common_config`, `build_tf_policy` with `make_model`, `before_loss_init`, `grad_stats_fn` and a mixin around
`make_tf_callable`, `A3CLoss`, `other_agent_batches` in `postprocess_fn`, `get_preprocessor(space)(space)` in the model,
`default_model=` of `get_model_v2`, and `tune.run(**config["run"])` whose `analysis.dataframe().head()` is printed.
"""

import os
from collections import OrderedDict
from pathlib import Path

import numpy as np
import ray
from gym import spaces
from rlframe import tune
from rlframe.agents.a3c.a3c_tf_policy import A3CLoss
from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.agents.trainer import with_common_config
from rlframe.agents.trainer_template import build_trainer
from rlframe.env.multi_agent_env import MultiAgentEnv
from rlframe.evaluation.postprocessing import Postprocessing, compute_advantages
from rlframe.models import ModelCatalog
from rlframe.models.modelv2 import ModelV2
from rlframe.models.preprocessors import get_preprocessor
from rlframe.models.tf.misc import normc_initializer
from rlframe.models.tf.tf_modelv2 import TFModelV2
from rlframe.policy.sample_batch import SampleBatch
from rlframe.policy.tf_policy_template import build_tf_policy
from rlframe.utils.annotations import override
from rlframe.utils.framework import get_activation_fn, try_import_tf
from rlframe.utils.tf_ops import explained_variance, make_tf_callable

tf1, tf, tfv = try_import_tf()
N = 2
OBS = spaces.Box(-1, 1, (3,), np.float32)
ACT = spaces.Discrete(3)


class Lanes(MultiAgentEnv):
    observation_space, action_space = OBS, ACT

    def __init__(self, config):
        super().__init__()
        self.limit = config["max_steps"]

    def observe(self):
        return {f"AGENT-{i}": np.array([self.x[i], self.x[1 - i], self.t / self.limit], np.float32) for i in range(N)}

    def reset(self):
        self.t, self.x = 0, np.random.uniform(-0.5, 0.5, N)
        return self.observe()

    def step(self, actions):
        self.t += 1
        self.x = np.clip(self.x + [0.1 * (int(actions[f"AGENT-{i}"]) - 1) for i in range(N)], -1, 1)
        apart = abs(self.x[0] - self.x[1])
        rewards = {f"AGENT-{i}": float(apart - abs(self.x[i])) for i in range(N)}
        return self.observe(), rewards, {"__all__": self.t >= self.limit}, {f"AGENT-{i}": {"apart": apart} for i in range(N)}


class CentralizedActorCriticModel(TFModelV2):
    CRITIC_OBS = "critic_obs"

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super(CentralizedActorCriticModel, self).__init__(obs_space, action_space, num_outputs, model_config, name)
        model_config = model_config["custom_model_config"]
        agents = range(model_config["agent_number"])
        seen = {**{f"AGENT-{i}": self.obs_space for i in agents}, **{f"AGENT-{i}-action": self.action_space for i in agents}}
        self.critic_obs = spaces.Dict(OrderedDict(seen))
        self.critic_preprocessor = get_preprocessor(self.critic_obs)(self.critic_obs)
        self.obs_preprocessor = get_preprocessor(self.obs_space)(self.obs_space)
        self.act_preprocessor = get_preprocessor(self.action_space)(self.action_space)
        sizes = (int(np.prod(p.shape)) for p in (self.obs_preprocessor, self.critic_preprocessor))
        self.action_model = self._build(next(sizes), num_outputs, model_config["action_model"], "policy")
        self.value_model = self._build(next(sizes), 1, model_config["value_model"], "value")
        self.register_variables(self.action_model.variables)
        self.register_variables(self.value_model.variables)

    def _build(self, size, out, config, name):
        inputs = layer = tf.keras.layers.Input(shape=(size,), name=name + "-inputs")
        activation = get_activation_fn(config.get("activation"))
        for i, width in enumerate(config.get("hiddens", [])):
            layer = tf.keras.layers.Dense(
                width, name=f"fc_{i}", activation=activation, kernel_initializer=normc_initializer(1.0)
            )(layer)
        return tf.keras.Model(inputs, [tf.keras.layers.Dense(out, kernel_initializer=normc_initializer(0.01))(layer)])

    @override(ModelV2)
    def forward(self, input_dict, state, seq_lens):
        logits = self.action_model(input_dict["obs_flat"])
        return (logits[0] if isinstance(logits, list) else logits), state

    def central_value_function(self, critic_obs):
        value = self.value_model(critic_obs)
        self._value_out = value[0] if isinstance(value, list) else value
        return tf.reshape(self._value_out, [-1])

    @override(ModelV2)
    def value_function(self):
        return tf.reshape(self._value_out, [-1])


ModelCatalog.register_custom_model("CAC", CentralizedActorCriticModel)


class CentralizedValueMixin:
    def __init__(self):
        self.compute_central_vf = make_tf_callable(self.get_session(), dynamic_shape=True)(self.model.central_value_function)


def build_cac_model(policy, obs_space, action_space, config):
    policy.model = ModelCatalog.get_model_v2(
        obs_space=obs_space,
        action_space=action_space,
        num_outputs=action_space.n if isinstance(action_space, spaces.Discrete) else np.prod(action_space.shape),
        model_config=config["model"], framework="tf", default_model=CentralizedActorCriticModel, name="cac",
    )
    return policy.model


def postprocess_trajectory(policy, sample_batch, other_agent_batches=None, episode=None):
    length = len(sample_batch[SampleBatch.CUR_OBS])
    model = policy.model
    critic_obs = np.zeros((length,) + model.critic_preprocessor.shape, np.float32)
    if policy.loss_initialized():
        slot = model.act_preprocessor.size + model.obs_preprocessor.size
        batches = [sample_batch, *(batch for _, batch in OrderedDict(other_agent_batches).values())]
        for i, batch in enumerate(batches):
            rows = min(length, batch[SampleBatch.CUR_OBS].shape[0])
            actions = np.eye(model.act_preprocessor.size)[batch[SampleBatch.ACTIONS][:rows]]
            critic_obs[:rows, i * slot : (i + 1) * slot] = np.concatenate([batch[SampleBatch.CUR_OBS][:rows], actions], axis=-1)
        assert len(batches) == N
        sample_batch[CentralizedActorCriticModel.CRITIC_OBS] = critic_obs
        sample_batch[SampleBatch.VF_PREDS] = policy.compute_central_vf(critic_obs)
    else:
        sample_batch[CentralizedActorCriticModel.CRITIC_OBS] = critic_obs
        sample_batch[SampleBatch.VF_PREDS] = np.zeros((length,), dtype=np.float32)
    return compute_advantages(sample_batch, 0.0, policy.config["gamma"], policy.config["lambda"], policy.config["use_gae"])


def ac_loss_func(policy, model, dist_class, train_batch):
    logits, _ = policy.model.from_batch(train_batch)
    policy.loss = A3CLoss(
        dist_class(logits, policy.model),
        train_batch[SampleBatch.ACTIONS],
        train_batch[Postprocessing.ADVANTAGES],
        train_batch[Postprocessing.VALUE_TARGETS],
        policy.model.central_value_function(train_batch[CentralizedActorCriticModel.CRITIC_OBS]),
        policy.config["vf_loss_coeff"],
        policy.config["entropy_coeff"],
    )
    return policy.loss.total_loss


def stats(policy, train_batch):
    return {"policy_loss": policy.loss.pi_loss, "policy_entropy": policy.loss.entropy, "vf_loss": policy.loss.vf_loss}


def central_vf_stats(policy, train_batch, grads):
    explained = explained_variance(train_batch[Postprocessing.VALUE_TARGETS], policy.model.value_function())
    return {"grad_gnorm": tf.linalg.global_norm(grads), "vf_explained_var": explained}


DEFAULT_CONFIG = with_common_config(
    {
        "gamma": 0.95, "lambda": 1.0, "use_gae": False, "vf_loss_coeff": 0.5, "entropy_coeff": 0.01,
        "truncate_episodes": True, "use_critic": True, "grad_clip": 40.0, "lr": 0.0001, "min_iter_time_s": 0,
        "sample_async": True, "lr_schedule": None,
    }
)
CA2CTFPolicy = build_tf_policy(
    name="CA2CTFPolicy", stats_fn=stats, grad_stats_fn=central_vf_stats, loss_fn=ac_loss_func,
    postprocess_fn=postprocess_trajectory, before_loss_init=lambda policy, *args: CentralizedValueMixin.__init__(policy),
    make_model=build_cac_model, mixins=[CentralizedValueMixin], get_default_config=lambda: DEFAULT_CONFIG,
)
CA2CTrainer = build_trainer(name="CA2C", default_policy=CA2CTFPolicy, default_config=DEFAULT_CONFIG)


class SimpleCallbacks(DefaultCallbacks):
    def on_episode_start(self, *, worker, base_env, policies, episode, **kwargs):
        episode.user_data["apart"] = []

    def on_episode_step(self, *, worker, base_env, episode, **kwargs):
        info = episode.last_info_for("AGENT-0")
        if info:
            episode.user_data["apart"].append(info["apart"])

    def on_episode_end(self, *, worker, base_env, policies, episode, **kwargs):
        episode.custom_metrics["mean_apart"] = float(np.mean(episode.user_data["apart"]))


def main():
    tower = {"activation": "tanh", "hiddens": [8]}
    options = {"agent_number": N, "critic_mode": "normal", "action_model": tower, "value_model": tower}
    model = {"custom_model": "CAC", "custom_model_config": options}
    config = {
        "trainer": CA2CTrainer,
        "env_config": {"max_steps": 20},
        "run": {
            "checkpoint_freq": 1, "checkpoint_at_end": True, "max_failures": 0, "resume": False, "verbose": 1,
            "stop": {"training_iteration": 2},
            "config": {
                "env": Lanes, "framework": "tf", "batch_mode": "complete_episodes", "rollout_fragment_length": 20,
                "train_batch_size": 40, "log_level": "WARN", "model": model,
                "multiagent": {
                    "policies": {f"AGENT-{i}": (None, OBS, ACT, {"model": model}) for i in range(N)},
                    "policy_mapping_fn": lambda agent_id: agent_id,
                },
            },
        },
    }
    config["run"]["config"].update(
        {"env_config": config["env_config"], "callbacks": SimpleCallbacks, "num_workers": 1, "horizon": 1000}
    )
    log_dir = Path("./log/results").expanduser().absolute() / "run"
    log_dir.mkdir(parents=True, exist_ok=True)
    config["run"].update(
        {"run_or_experiment": config["trainer"], "name": "lanes-4", "local_dir": str(log_dir), "restore": None}
    )
    ray.init(num_cpus=2)
    analysis = tune.run(**config["run"])
    frame = analysis.dataframe()
    print(frame.head())
    assert frame["custom_metrics/mean_apart_mean"].notna().all() and frame["training_iteration"].iloc[0] == 2
    stats_seen = analysis.trials[0].last_result["info"]["learner"]["AGENT-0"]
    assert {"policy_entropy", "grad_gnorm"} <= stats_seen.get("learner_stats", stats_seen).keys()
    assert os.path.isdir(log_dir / "lanes-4")
    ray.shutdown()
    print("ok program_central_critic_a2c")


if __name__ == "__main__":
    main()
