"""Robots of a warehouse: an experiment from a YAML file, a list as a custom metric, a rollout from what it left.

Uses RLlib as ffahleraz/rllib-warehouse does (scripts/train.py, scripts/rollout.py, scripts/experiments): one callback
set into the loaded experiment, `run_experiments` of it, a multi-agent environment whose agents share the default
policy, and a trainer made from `params.json` as it was written, functions as strings, that restores the checkpoint
nearest to an iteration. Its SAC is PPO here, as in its tune_ppo.py.
"""

import glob
import json
import os

import gym
import numpy as np
import ray
import yaml
from rlframe.agents.ppo import PPOTrainer
from rlframe.env.multi_agent_env import MultiAgentEnv
from rlframe.tune.registry import register_env
from rlframe.tune.tune import run_experiments

EXPERIMENT = """
warehouse-2:
    env: Warehouse2-v0
    run: PPO
    stop:
        training_iteration: 3
    checkpoint_freq: 2
    checkpoint_at_end: True
    local_dir: trials
    config:
        framework: torch
        horizon: 10
        soft_horizon: False
        no_done_at_end: True
        normalize_actions: False
        num_gpus: 0
        num_workers: 0
        train_batch_size: 100
        sgd_minibatch_size: 50
        num_sgd_iter: 2
        model:
            fcnet_hiddens:
                - 16
"""


class Warehouse(MultiAgentEnv):
    """Robots on a line fetch the item that was ordered: an agent's name is its number, as a string."""

    def __init__(self, num_agents):
        super().__init__()
        self.num_agents = num_agents
        self.observation_space = gym.spaces.Dict(
            {
                "self_position": gym.spaces.Box(0, 1, (1,), np.float32),
                "self_availability": gym.spaces.MultiBinary(1),
                "requests": gym.spaces.Box(0, 1, (2,), np.float32),
            }
        )
        self.action_space = gym.spaces.MultiDiscrete([3, 2])

    def observe(self):
        return {
            f"{i}": {
                "self_position": np.float32([self.at[i] / 9]),
                "self_availability": np.int8([not self.holds[i]]),
                "requests": np.float32([self.wanted / 9, 1.0]),
            }
            for i in range(self.num_agents)
        }

    def reset(self):
        self.at, self.holds, self.wanted = [0] * self.num_agents, [False] * self.num_agents, np.random.randint(1, 9)
        return self.observe()

    def step(self, action_dict):
        rewards = {}
        for name, (move, grip) in action_dict.items():
            i = int(name)
            self.at[i] = int(np.clip(self.at[i] + move - 1, 0, 9))
            rewards[name] = float(bool(grip) and self.at[i] == self.wanted)
        return self.observe(), rewards, {"__all__": False}, {}

    def render(self):
        return "".join("x" if i in self.at else "." for i in range(10))


class Warehouse2(Warehouse):
    def __init__(self):
        super().__init__(2)


def on_episode_end(info):
    episode = info["episode"]
    current = len(episode.agent_rewards)
    average = sum([value for _, value in episode.agent_rewards.items()]) / current
    episode.custom_metrics["avg_agent_reward_all"] = [average]
    episode.custom_metrics[f"avg_agent_reward_{current}"] = [average]


def train(config_path):
    for key, val in {"Warehouse2-v0": Warehouse2}.items():
        register_env(key, lambda _, val=val: val())
    with open(config_path) as config_file:
        experiments = yaml.safe_load(config_file)
    experiment_name = list(experiments.keys())[0]
    experiments[experiment_name]["config"]["callbacks"] = {"on_episode_end": on_episode_end}
    (trial,) = run_experiments(experiments)
    metrics = trial.last_result["custom_metrics"]
    mean = metrics["avg_agent_reward_all_mean"]
    assert mean == metrics["avg_agent_reward_2_mean"]
    assert abs(2 * mean - trial.last_result["episode_reward_mean"]) < 1e-6, (mean, trial.last_result)
    return trial.logdir


def rollout(trial_dir, iteration):
    params = json.load(open(os.path.join(trial_dir, "params.json"), "rb"))
    checkpoint_paths = glob.glob(os.path.join(trial_dir, "checkpoint_*"))
    checkpoint_iterations = sorted([int(os.path.basename(path).split("_")[1]) for path in checkpoint_paths])
    choice = min(checkpoint_iterations, key=lambda x: abs(x - iteration))
    assert choice == iteration, checkpoint_iterations
    # the original writes checkpoint_%d: directories had no leading zeros then
    restore_dir = os.path.join(trial_dir, f"checkpoint_{choice:06d}", f"checkpoint-{choice}")
    trainer = PPOTrainer(config=params)
    trainer.restore(restore_dir)
    assert trainer.iteration == choice

    env = Warehouse2()
    observations, totals, step_count = env.reset(), [0.0, 0.0], 0
    while step_count < 10:
        action_dict = {f"{i}": trainer.compute_action(observations[f"{i}"]) for i in range(env.num_agents)}
        observations, rewards, _, _ = env.step(action_dict=action_dict)
        totals = [totals[i] + rewards[f"{i}"] for i in range(env.num_agents)]
        step_count += 1
    assert len(env.render()) == 10 and min(totals) >= 0
    trainer.stop()


def main():
    ray.init(num_cpus=2)
    with open("warehouse2.yaml", "w") as file:
        file.write(EXPERIMENT)
    rollout(train("warehouse2.yaml"), iteration=2)
    ray.shutdown()
    print("ok program_warehouse_experiment_file")


if __name__ == "__main__":
    main()
