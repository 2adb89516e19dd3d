"""A study of action spaces: a file of experiments, loggers of its own, a TensorFlow model for several action spaces.

Uses RLlib as Miffyli/rl-action-space-shaping does (run_rllib.py, rllib/models/doom_nature_model.py): argparse with a
YAML file, `tune.run_experiments` of all it holds, `loggers` with a `Logger` subclass (`_init`, `on_result`, `flush`,
`close`) beside `TBXLogger`, a grid search in the file, and a model whose variables come with its first call.
"""

import glob
import os
from argparse import ArgumentParser

import gym
import numpy as np
import ray
import yaml
from rlframe import tune
from rlframe.models import ModelCatalog
from rlframe.models.tf.tf_modelv2 import TFModelV2
from rlframe.tune.logger import Logger, TBXLogger
from rlframe.utils.framework import try_import_tf

_, tf, _ = try_import_tf()

EXPERIMENTS = """
goal-ppo:
    env: get_to_goal_env
    run: PPO
    num_samples: 1
    stop:
        training_iteration: 2
    config:
        framework: tf
        env_config:
            env_name: goal
            logging_path: {folder}
            multi_discrete:
                grid_search: [true, false]
        num_workers: 0
        train_batch_size: 100
        sgd_minibatch_size: 50
        num_sgd_iter: 2
        model:
            custom_model: doom_nature_model
"""


class GetToGoalEnv(gym.Env):
    """A walker turns and goes; actions are a MultiDiscrete or one Discrete."""

    def __init__(self, config):
        self.multi = config["multi_discrete"]
        self.action_space = gym.spaces.MultiDiscrete([2, 3]) if self.multi else gym.spaces.Discrete(4)
        self.observation_space = gym.spaces.Box(-1, 1, (4,), np.float32)

    def reset(self):
        self.at, self.angle, self.steps = np.zeros(2), 0.0, 0
        self.goal = np.random.uniform(-1, 1, 2)
        return self.observe()

    def observe(self):
        return np.clip(np.concatenate([self.goal - self.at, [np.cos(self.angle), np.sin(self.angle)]]), -1, 1).astype(np.float32)

    def step(self, action):
        forward, turn = action if self.multi else [(0, 1), (1, 1), (0, 0), (0, 2)][action]
        self.angle += 0.5 * (int(turn) - 1)
        before = np.linalg.norm(self.goal - self.at)
        self.at = self.at + 0.1 * forward * np.array([np.cos(self.angle), np.sin(self.angle)])
        self.steps += 1
        near = np.linalg.norm(self.goal - self.at)
        return self.observe(), float(before - near), bool(near < 0.1 or self.steps >= 25), {}


class CSVLogger(Logger):
    def _init(self):
        self._config = None
        self.out_files_dict = {}

    def on_result(self, result):
        experiment_tag = result.get("experiment_tag", "no_experiment_tag")
        experiment_id = result.get("experiment_id", "no_experiment_id")
        out_file = self.out_files_dict.get(experiment_tag)
        if out_file is None:
            env_config = result.get("config")["env_config"]
            os.makedirs(env_config["logging_path"], exist_ok=True)
            name = f"{env_config['env_name']}-{env_config['multi_discrete']}-{experiment_id}"
            out_file = open(os.path.join(env_config["logging_path"], name), "a")
            self.out_files_dict[experiment_tag] = out_file
        out_file.write(f"{result['timesteps_total']}\t{result['episode_reward_mean']}\n")
        out_file.flush()

    def flush(self):
        for out_file in self.out_files_dict.values():
            out_file.flush()

    def close(self):
        for out_file in self.out_files_dict.values():
            out_file.close()


class DoomNatureModel(TFModelV2):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.body = tf.keras.layers.Dense(16, activation=tf.nn.relu)
        nvec = action_space.nvec if isinstance(action_space, gym.spaces.MultiDiscrete) else [action_space.n]
        self.heads = [tf.keras.layers.Dense(int(n)) for n in nvec]
        self.value = tf.keras.layers.Dense(1)

    def forward(self, input_dict, state, seq_lens):
        obs, prev_actions = input_dict["obs"], input_dict["prev_actions"]
        assert prev_actions is not None
        latent = self.body(obs)
        self.baseline = tf.reshape(self.value(latent), [-1])
        return tf.concat([head(latent) for head in self.heads], axis=1), state

    def variables(self, as_dict=False):
        var_list = [v for layer in [self.body, *self.heads, self.value] for v in layer.variables]
        return {v.name: v for v in var_list} if as_dict else var_list

    def value_function(self):
        return self.baseline


def run_experiment(args):
    with open(args.config_file) as f:
        experiments = yaml.safe_load(f)
    tune.register_env("get_to_goal_env", lambda config: GetToGoalEnv(config))
    ModelCatalog.register_custom_model("doom_nature_model", DoomNatureModel)
    for exp in experiments.values():
        exp["loggers"] = [CSVLogger, TBXLogger]
    ray.init(num_cpus=2)
    return tune.run_experiments(experiments)


def main():
    parser = ArgumentParser("Run rllib action-space experiments.")
    parser.add_argument("--config_file", type=str, default="experiments.yaml")
    args = parser.parse_args([])
    folder = os.path.abspath("logged")
    with open(args.config_file, "w") as f:
        f.write(EXPERIMENTS.format(folder=folder))
    trials = run_experiment(args)
    assert len(trials) == 2 and all(trial.status == "TERMINATED" for trial in trials)
    files = glob.glob(folder + "/goal-*")
    assert len(files) == 2, files
    for path in files:
        rows = [line.split("\t") for line in open(path)]
        assert [int(row[0]) for row in rows] == [100, 200], rows
    assert glob.glob(os.path.join(trials[0].logdir, "events.out.tfevents*"))
    ray.shutdown()
    print("ok program_action_shaping_yaml")


if __name__ == "__main__":
    main()
