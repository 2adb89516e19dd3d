"""Jobs of a data centre are placed and cooled: a dict of actions from a Keras network of one's own.

Uses RLlib as albheim/rldc_rafsine does (main.py, models/serverconv.py, util/loggingcallbacks.py): a `TFModelV2` built by
the functional API from a dict observation's entries, whose outputs are put together for a dict of actions, options as
keyword arguments, `soft_horizon` with `no_done_at_end`, functions in `env_config`, slashes in the names of custom
metrics, `tune.choice` within the model's options, and `best_trial`, `best_config`, `best_logdir`, `best_checkpoint`,
`best_result` and `best_result_df` of the analysis.
"""

import os
from datetime import datetime

import gym
import numpy as np
import ray
import rlframe.tune as tune
from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.env import BaseEnv
from rlframe.evaluation import MultiAgentEpisode, RolloutWorker
from rlframe.models import ModelCatalog
from rlframe.models.modelv2 import ModelV2
from rlframe.models.tf.tf_modelv2 import TFModelV2
from rlframe.policy import Policy
from rlframe.policy.sample_batch import SampleBatch
from rlframe.utils import try_import_tf  # tensorflow
from rlframe.utils.annotations import override

tf, tf2, _ = try_import_tf()
N_SERVERS, HORIZON = 6, 20


class DCEnv(gym.Env):
    """Six servers are heated by the jobs that are placed on them."""

    def __init__(self, config):
        self.n_servers, self.load_generator = config["n_servers"], config["load_generator"]()
        actions = {
            "server_placement": gym.spaces.Discrete(self.n_servers),
            "crah_temp_out": gym.spaces.Box(-1, 1, (1,), np.float32),
            "crah_flow": gym.spaces.Box(-1, 1, (1,), np.float32),
        }
        self.action_space = gym.spaces.Dict({name: actions[name] for name in config["actions"]})
        self.observation_space = gym.spaces.Dict(
            {
                "server_temp_out": gym.spaces.Box(-50, 150, (self.n_servers,), np.float32),
                "server_load": gym.spaces.Box(0, 500, (self.n_servers,), np.float32),
                "job": gym.spaces.Box(0, 100, (2,), np.float32),
            }
        )
        self.load, self.temp, self.time = np.zeros(self.n_servers), np.full(self.n_servers, 25.0), 0

    def observe(self):
        return {
            "server_temp_out": self.temp.astype(np.float32), "server_load": self.load.astype(np.float32),
            "job": np.array([self.job, 10], np.float32),
        }  # fmt: skip

    def reset(self):
        self.job = self.load_generator(self.time)
        return self.observe()

    def step(self, action):
        assert self.action_space.contains(action), action
        self.time += 1
        self.load *= 0.9
        self.load[action["server_placement"]] += self.job
        cold, flow = 20 + float(action["crah_temp_out"][0]), 1 + 0.5 * float(action["crah_flow"][0])
        self.temp += 0.1 * self.load - 0.2 * flow * (self.temp - cold)
        self.temp = np.clip(self.temp, -50, 150)
        self.job = self.load_generator(self.time)
        return self.observe(), float(-self.temp.max() / 100 - flow), False, {}


def load_generator_creator():
    return lambda time: float(time % 3 * 5)


class ServerConvNetwork(TFModelV2):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name,
                 n_servers=360, n_hidden=256, inject=False, activation="relu",
                 n_conv_layers=1, n_conv_hidden=1, n_pre_layers=1, n_crah_layers=1, n_value_layers=2):  # fmt: skip
        obs_space = obs_space.original_space if hasattr(obs_space, "original_space") else obs_space
        super(ServerConvNetwork, self).__init__(obs_space, action_space, num_outputs, model_config, name)
        keras = tf.keras.layers
        all_inputs, server_inputs = [], []
        for component_name in obs_space:
            inp = tf.keras.Input(shape=obs_space[component_name].shape, name=component_name)
            all_inputs.append(inp)
            if "server" in component_name:
                server_inputs.append(inp)
        all_conc = keras.Concatenate()(all_inputs)
        pre = all_conc
        for i in range(n_pre_layers):
            pre = keras.Dense(n_hidden, activation=activation, name=f"pre_dense{i}")(pre)
        if inject:
            server_inputs.append(keras.Dense(n_servers, activation=activation)(pre))
        server_reshaped = [keras.Reshape(target_shape=(-1, 1))(x) for x in server_inputs]
        conv = keras.Concatenate(axis=2, name="server_concat")(server_reshaped)
        for i in range(n_conv_layers):
            conv = keras.Conv1D(n_conv_hidden, 1, activation=activation, name=f"server_conv{i}")(conv)
        conv = keras.Conv1D(1, 1, activation=activation, name="server_conv_last")(conv)
        placement = keras.Flatten(name="server_out")(conv)
        crah = all_conc
        for i in range(n_crah_layers):
            crah = keras.Dense(n_hidden, activation=activation, name=f"crah_dense{i}")(crah)
        outputs = {
            "crah_temp_out": keras.Dense(2, name="crah_temp_out")(crah),
            "crah_flow": keras.Dense(2, name="crah_flow_out")(crah),
            "server_placement": placement,
        }
        action_out = keras.Concatenate(name="action_out")([outputs[k] for k in action_space])
        value = all_conc
        for i in range(n_value_layers):
            value = keras.Dense(n_hidden, activation=activation, name=f"value_dense{i}")(value)
        value_out = keras.Dense(1, name="value_out")(value)
        self.base_model = tf.keras.Model(inputs=all_inputs, outputs=[action_out, value_out])

    @override(ModelV2)
    def forward(self, input_dict, state, seq_lens):
        logit_tuple, values = self.base_model(input_dict[SampleBatch.OBS])
        self._value_out = tf.reshape(values, [-1])
        return logit_tuple, []

    @override(ModelV2)
    def value_function(self):
        return self._value_out


class LoggingCallbacks(DefaultCallbacks):
    def on_sample_end(self, *, worker: RolloutWorker, samples: SampleBatch, **kwargs):
        pass

    def on_episode_end(self, *, worker: RolloutWorker, base_env: BaseEnv, policies: "dict[str, Policy]",
                       episode: MultiAgentEpisode, env_index: int, **kwargs):  # fmt: skip
        env = base_env.get_unwrapped()[env_index]
        for i in range(env.n_servers):
            episode.custom_metrics[f"srv{i}/load"] = env.load[i]
        episode.custom_metrics["srv/max_temp_cpu"] = env.temp.max()
        episode.custom_metrics["other/time"] = env.time


def main():
    ray.init(num_cpus=2)
    tune.register_env("DCEnv", DCEnv)
    ModelCatalog.register_custom_model("serverconv", ServerConvNetwork)
    analysis = tune.run(
        "PPO",
        config={
            "env": "DCEnv",
            "env_config": {
                "n_servers": N_SERVERS, "load_generator": load_generator_creator,
                "actions": ["server_placement", "crah_temp_out", "crah_flow"],
            },
            "model": {
                "custom_model": "serverconv",
                "custom_model_config": {
                    "n_servers": N_SERVERS, "activation": "tanh", "n_hidden": tune.choice([8, 16]),
                    "n_pre_layers": tune.choice([0, 1]), "inject": False, "n_conv_layers": tune.choice([0, 1]),
                    "n_conv_hidden": 3, "n_crah_layers": 1, "n_value_layers": tune.choice([1, 2]),
                },
            },
            "framework": "tf", "num_workers": 1, "num_envs_per_worker": 1, "num_gpus_per_worker": 0,
            "num_cpus_per_worker": 1, "seed": 37, "callbacks": LoggingCallbacks, "soft_horizon": True,
            "no_done_at_end": True, "horizon": HORIZON, "train_batch_size": 3 * HORIZON,
            "rollout_fragment_length": HORIZON, "sgd_minibatch_size": HORIZON, "num_sgd_iter": 2,
            "vf_clip_param": tune.choice([100.0, 10000.0, 1000000.0]),
        },
        stop={"timesteps_total": 6 * HORIZON},
        name="default" + datetime.now().strftime("_%Y-%m-%d_%H-%M-%S"),
        local_dir=os.path.join("results", "PPO", "SIMPLE", "DCEnv"),
        trial_name_creator=lambda trial: "trial",
        num_samples=1, metric="episode_reward_mean", mode="max", checkpoint_at_end=True, verbose=1,
    )  # fmt: skip
    assert str(analysis.best_trial) == "trial"
    assert analysis.best_config["model"]["custom_model_config"]["n_hidden"] in (8, 16)
    assert os.path.isdir(analysis.best_logdir) and analysis.best_checkpoint
    result = analysis.best_result
    assert result["episode_len_mean"] == HORIZON and result["custom_metrics"]["srv5/load_mean"] >= 0
    # a soft horizon ends what is counted as an episode, and leaves the environment as it is
    assert result["custom_metrics"]["other/time_max"] == 6 * HORIZON, result["custom_metrics"]
    assert len(analysis.best_result_df) == 1
    ray.shutdown()
    print("ok program_server_cooling")


if __name__ == "__main__":
    main()
