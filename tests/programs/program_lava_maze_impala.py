"""A maze with lava: IMPALA in TensorFlow through Tune, stopped by a function, then rollouts for several seeds.

Uses RLlib as Azure/MachineLearningNotebooks does (how-to-use-azureml/reinforcement-learning/minecraft-on-distributed-
compute/files: minecraft_train.py, minecraft_rollout.py): `stop=` a function of trial id and result, callbacks as a dict,
replay and an epsilon-greedy exploration beneath IMPALA, a checkpoint found by its name's pattern, `get_trainable_cls`,
and the environment taken from the local worker.
"""

import argparse
import glob
import os

import gym
import numpy as np
import ray
from rlframe import tune
from rlframe.tune.registry import get_trainable_cls

SEEN = []


class LavaMaze(gym.Env):
    """A corridor whose middle is lava unless one jumps; what is seen are three rows of it."""

    def __init__(self, mission, is_rollout=False, seed=0):
        assert mission.endswith(".xml")
        self.observation_space = gym.spaces.Box(0, 1, (7,), np.float32)
        self.action_space = gym.spaces.Discrete(3)
        self.is_rollout, self.trajectory, self.mission_seed = is_rollout, [], int(seed)

    def reset(self):
        self.at, self.t = self.mission_seed % 2, 0
        return np.eye(7, dtype=np.float32)[self.at]

    def step(self, action):
        self.t += 1
        self.at = min(6, self.at + int(action))
        self.trajectory.append(int(action))
        done = self.at in (3, 6) or self.t >= 12
        return np.eye(7, dtype=np.float32)[self.at], {3: -1.0, 6: 1.0}.get(self.at, -0.01), done, {}

    def get_trajectory(self):
        return self.trajectory


def create_env(config):
    return LavaMaze(**config)


def on_train_result(info):
    result = info["result"]
    result["callback_ok"] = True
    assert info["trainer"].config["num_workers"] == 1


def stop(trial_id, result):
    SEEN.append((trial_id, result["training_iteration"]))
    return result["episode_reward_mean"] >= 1 or result["training_iteration"] >= 2 or result["time_total_s"] > 5 * 60 * 60


def run_rollout(trainable_type, checkpoint, seed):
    config = {
        "env_config": {"mission": "lava_maze_rollout-v0.xml", "is_rollout": True, "seed": seed},
        "num_workers": 0, "framework": "tf", "model": {"fcnet_hiddens": [16]},
    }
    cls = get_trainable_cls(trainable_type)
    agent = cls(env="Minecraft", config=config)
    agent.restore(checkpoint)
    env = agent.workers.local_worker().env
    obs, done, total_reward = env.reset(), False, 0
    obs = obs[0] if isinstance(obs, tuple) else obs
    while not done:
        action = agent.compute_action(obs)
        step = env.step(action)
        obs, reward, done = step[0], step[1], any(step[2:-1])
        total_reward += reward
    env.close()
    agent.stop()
    return total_reward, env.get_trajectory() if hasattr(env, "get_trajectory") else env.unwrapped.get_trajectory()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", required=False, default="IMPALA")
    args = parser.parse_args([])
    tune.register_env("Minecraft", create_env)
    ray.init(num_cpus=2)
    tune.run(
        run_or_experiment=args.run,
        config={
            "env": "Minecraft", "env_config": {"mission": "minecraft_missions/lava_maze-v0.xml"}, "framework": "tf",
            "num_workers": 1, "num_cpus_per_worker": 1, "rollout_fragment_length": 10, "train_batch_size": 40,
            "replay_buffer_num_slots": 20, "replay_proportion": 1, "learner_queue_timeout": 900, "num_sgd_iter": 2,
            "num_data_loader_buffers": 1, "model": {"fcnet_hiddens": [16]}, "min_iter_time_s": 1,
            "exploration_config": {
                "type": "EpsilonGreedy", "initial_epsilon": 1.0, "final_epsilon": 0.02, "epsilon_timesteps": 500,
            },
            "callbacks": {"on_train_result": on_train_result},
        },
        stop=stop,
        checkpoint_at_end=True,
        local_dir="./logs",
    )
    assert SEEN and SEEN[-1][1] <= 2
    found = glob.glob("logs/**/checkpoint_*", recursive=True)
    checkpoint = [path for path in found if os.path.isdir(path)][-1]
    for seed in ["1234", "43289"]:
        reward, trajectory = run_rollout(args.run, checkpoint, seed)
        assert -1.2 <= reward <= 1 and trajectory
    ray.shutdown()
    print("ok program_lava_maze_impala")


if __name__ == "__main__":
    main()
