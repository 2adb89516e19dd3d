"""A runner of algorithms: arguments become a config, trials and their folders get names of the user's, results go to pandas.

Uses RLlib as PKramek/rllib_runner does (run.py, src/util.py, src/algorithms.py): a factory of strategies around
`ppo.DEFAULT_CONFIG.copy()`, model keys split from the others, `trial_name_creator` and `trial_dirname_creator` that take a
`tune.trial.Trial` and read `trial.config` and `trial.trainable_name`, and `progress.csv` found by the trial's name.
"""

import argparse
import os

import gym
import numpy as np
import pandas as pd
import ray
from rlframe import tune
from rlframe.agents import ppo as ppo

LOGS_DIRECTORY = os.path.abspath("logs")
MODEL_PARAMS = {"fcnet_hiddens", "fcnet_activation", "vf_share_layers"}
PPO_PARAMS = {"lambda", "clip_param", "sgd_minibatch_size", "num_sgd_iter", "vf_loss_coeff"}
COMMON_PARAMS = {"env", "framework", "gamma", "lr", "train_batch_size", "observation_filter", "evaluation_interval",
                 "evaluation_num_episodes", "evaluation_config"}  # fmt: skip


class Hopper(gym.Env):
    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = gym.spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, config=None):
        self.spec = None

    def reset(self):
        self.t, self.x = 0, np.zeros(3)
        return self.x

    def step(self, action):
        self.t += 1
        self.x = self.x * 0.9 + np.append(action, 0.1)
        return self.x, float(self.x[0]), bool(self.t >= 25 or abs(self.x[1]) > 3), {}


class PPOStrategy:
    @property
    def algorithm_specific_parameters(self):
        return PPO_PARAMS

    def get_default_config(self):
        return ppo.DEFAULT_CONFIG.copy()

    def get_config_from_args_params(self, args_params):
        keys = self.algorithm_specific_parameters | COMMON_PARAMS
        assert keys - MODEL_PARAMS <= set(args_params) | set(self.get_default_config())
        params = {key: value for key, value in args_params.items() if key in keys}
        params["model"] = {key: value for key, value in args_params.items() if key in MODEL_PARAMS}
        return params


def trial_name_generator(trial: "tune.trial.Trial") -> str:
    trial_name = f"{trial.config['env']}_{trial.trainable_name}_ABC123"
    os.environ["EVAL_DIR"] = f"{LOGS_DIRECTORY}/{trial.trainable_name}/{trial_name}"
    os.environ["PROGRESS_FILE"] = f"{LOGS_DIRECTORY}/{trial.trainable_name}/{trial_name}/progress.csv"
    return trial_name


def trial_dirname_creator(trial: tune.trial.Trial):
    return str(trial)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--algo", default="PPO")
    parser.add_argument("--env", default="Hopper-v2")
    parser.add_argument("--max_timesteps", type=int, default=200)
    parser.add_argument("--framework", default="tf")
    parser.add_argument("--fcnet_hiddens", type=int, nargs="+", default=[8])
    parser.add_argument("--fcnet_activation", default="tanh")
    parser.add_argument("--lambda", type=float, default=0.95)
    parser.add_argument("--train_batch_size", type=int, default=100)
    parser.add_argument("--sgd_minibatch_size", type=int, default=50)
    parser.add_argument("--num_sgd_iter", type=int, default=2)
    parser.add_argument("--observation_filter", default="MeanStdFilter")
    parser.add_argument("--evaluation_interval", type=int, default=1)
    parser.add_argument("--evaluation_num_episodes", type=int, default=2)
    args = vars(parser.parse_args(["--algo", "PPO"]))
    algorithm_name, max_timesteps = args.pop("algo"), args.pop("max_timesteps")
    tune.register_env("Hopper-v2", Hopper)
    config = {"PPO": PPOStrategy}[algorithm_name]().get_config_from_args_params(args)
    config["num_workers"] = int(os.getenv("NUM_OF_WORKERS", "1"))
    config["evaluation_config"] = {"explore": False}
    ray.init(object_store_memory=100 * 2**20, num_cpus=2)
    result = tune.run(
        algorithm_name, stop={"timesteps_total": max_timesteps}, config=config, local_dir=LOGS_DIRECTORY,
        trial_dirname_creator=trial_dirname_creator, trial_name_creator=trial_name_generator,
    )
    progress_df = pd.read_csv(os.environ["PROGRESS_FILE"])
    columns_mapping = {
        "timesteps_total": "time_step", "episode_reward_max": "eval_return_max", "episode_reward_min": "eval_return_min",
        "episode_reward_mean": "eval_return_mean", "episode_len_mean": "eval_episode_len_mean",
    }
    frame = progress_df[list(columns_mapping)].rename(columns=columns_mapping)
    frame.to_csv(path_or_buf=f"{os.environ['EVAL_DIR']}/results.csv")
    assert list(frame["time_step"]) == [100, 200]
    assert progress_df["evaluation/episode_reward_mean"].notna().all()
    assert str(result.trials[0]) == "Hopper-v2_PPO_ABC123"
    ray.shutdown()
    print("ok program_named_trials")


if __name__ == "__main__":
    main()
