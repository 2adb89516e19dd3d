"""A cloud's launcher of training jobs: an experiment put together, run, and a model exported from its checkpoint.

Uses RLlib as aws/amazon-sagemaker-examples does (reinforcement_learning/common/sagemaker_rl/ray_launcher.py): a base class
with hooks, `ray.init(**config)`, hyperparameters such as `rl.training.config.lr` put into the experiment,
`run_experiments`, then `params.json` read from the results, `get_agent_class`, `agent.restore` and
`agent.export_policy_model`, which TensorFlow loads.
"""

import glob
import json
import os
import shutil

import gym
import numpy as np
import ray
from rlframe.agents.registry import get_agent_class
from rlframe.tune import run_experiments
from rlframe.tune.registry import register_env

INTERMEDIATE_DIR, MODEL_OUTPUT_DIR = os.path.abspath("intermediate"), os.path.abspath("model")


class Servers(gym.Env):
    """So many game servers as players will come."""

    def __init__(self, env_config=None):
        self.observation_space = gym.spaces.Box(0, 1, (4,), np.float32)
        self.action_space = gym.spaces.Box(0, 1, (1,), np.float32)

    def reset(self):
        self.t, self.demand = 0, np.random.uniform(0, 1, 4).astype(np.float32)
        return self.demand

    def step(self, action):
        self.t += 1
        wanted = float(np.clip(np.sin(self.t / 5) / 2 + 0.5, 0, 1))
        reward = 1 - abs(wanted - float(np.clip(action[0], 0, 1)))
        self.demand = np.append(self.demand[1:], np.float32(wanted))
        return self.demand, reward, self.t >= 20, {}


class Launcher:
    def register_env_creator(self):
        raise NotImplementedError

    def get_experiment_config(self):
        raise NotImplementedError

    def customize_experiment_config(self, config):
        hyperparams = json.loads(os.environ.get("SM_HPS", "{}"))
        hyperparams["rl.training.local_dir"] = INTERMEDIATE_DIR
        hyperparams["rl.training.checkpoint_at_end"] = True
        hyperparams["rl.training.checkpoint_freq"] = config["training"].get("checkpoint_freq", 10)
        for name, value in hyperparams.items():
            if not name.startswith("rl."):
                continue
            *parts, last = name.split(".")[1:]
            place = config
            for part in parts:
                place = place[part]
            place[last] = value
        return config

    def save_experiment_config(self):
        (source,) = glob.glob(INTERMEDIATE_DIR + "/**/params.json", recursive=True)
        os.makedirs(MODEL_OUTPUT_DIR, exist_ok=True)
        shutil.copyfile(source, os.path.join(MODEL_OUTPUT_DIR, "params.json"))

    def create_tf_serving_model(self, checkpoint, algorithm=None, env_string=None):
        self.register_env_creator()
        cls = get_agent_class(algorithm)
        with open(os.path.join(MODEL_OUTPUT_DIR, "params.json")) as config_json:
            config = json.load(config_json)
        config["monitor"] = False
        config["num_workers"] = 1
        config["num_gpus"] = 0
        agent = cls(env=env_string, config=config)
        agent.restore(checkpoint)
        agent.export_policy_model(os.path.join(MODEL_OUTPUT_DIR, "1"))
        return agent

    def launch(self):
        self.register_env_creator()
        ray.init(num_cpus=3, num_gpus=0)
        config = self.customize_experiment_config(self.get_experiment_config())
        trials = run_experiments(config)
        algo, env_string = config["training"]["run"], config["training"]["config"]["env"]
        self.save_experiment_config()
        checkpoint = sorted(glob.glob(INTERMEDIATE_DIR + "/**/checkpoint_*", recursive=True))[-1]
        return trials, self.create_tf_serving_model(checkpoint, algo, env_string)


class MyLauncher(Launcher):
    def register_env_creator(self):
        register_env("GameServers-v0", lambda env_config: Servers(env_config))

    def get_experiment_config(self):
        return {
            "training": {
                "env": "GameServers-v0",
                "run": "PPO",
                "stop": {"training_iteration": 2},
                "config": {
                    "env": "GameServers-v0", "framework": "tf", "ignore_worker_failures": True, "gamma": 0, "kl_coeff": 1.0,
                    "num_sgd_iter": 2, "lr": 0.0001, "sgd_minibatch_size": 50, "train_batch_size": 100,
                    "monitor": False, "model": {"free_log_std": False, "fcnet_hiddens": [8]}, "num_workers": 1,
                    "num_gpus": 0, "batch_mode": "complete_episodes", "observation_filter": "MeanStdFilter",
                },
            }
        }


def main():
    os.environ["SM_HPS"] = json.dumps({"rl.training.config.lr": 0.0005, "save_model": 1})
    trials, agent = MyLauncher().launch()
    assert trials[0].last_result["config"]["lr"] == 0.0005 and agent.config["lr"] == 0.0005
    assert agent.iteration == 2
    import tensorflow as tf

    loaded = tf.saved_model.load(os.path.join(MODEL_OUTPUT_DIR, "1"))
    assert loaded.signatures, dir(loaded)
    agent.stop()
    ray.shutdown()
    print("ok program_cloud_launcher")


if __name__ == "__main__":
    main()
