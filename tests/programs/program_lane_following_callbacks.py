"""A robot follows its lane: callbacks as functions of one dict, histograms of trajectories, loggers of one's own.

Uses RLlib as kaland313/Duckietown-RL does (experiments/train-rllib.py, test-rllib.py, duckietown_utils/
rllib_callbacks.py, rllib_loggers.py, config/config.py): lists in `episode.user_data` and `episode.hist_data`,
`last_action_for()` and `last_info_for()` without an agent, `info["env"].get_unwrapped()[0].unwrapped` below wrappers,
`hist_stats` cut to this iteration in `on_train_result`, obstacles switched on from there with
`foreach_worker_with_index` and `foreach_env`, `loggers=` with subclasses of `Logger` that override `__init__`, a restored trainer
that acts with `explore=False`.
"""

import glob
import os

import gym
import numpy as np
import ray
from rlframe import tune
from rlframe.agents.ppo import PPOTrainer
from rlframe.tune.logger import CSVLogger, Logger, TBXLogger, pretty_print
from rlframe.tune.registry import register_env
from rlframe.tune.result import TIMESTEPS_TOTAL, TRAINING_ITERATION
from rlframe.tune.utils import flatten_dict

LIMITS = [-1.0, 1.0]


class Simulator(gym.Env):
    """A lane along a line; the robot drifts off it."""

    def __init__(self, seed, distortion=True):
        self.observation_space = gym.spaces.Box(-10, 10, (2,), np.float32)
        self.action_space = gym.spaces.Box(-1, 1, (2,), np.float32)
        self.distortion, self.rng, self.road_tile_size = distortion, np.random.RandomState(seed), 0.585

    def observe(self):
        return np.clip([self.off, self.angle], -10, 10).astype(np.float32)

    def reset(self):
        self.along, self.off, self.angle, self.t = 0.0, self.rng.uniform(-0.2, 0.2), 0.0, 0
        return self.observe()

    def step(self, action):
        speed, turn = (float(a) for a in action)
        self.t += 1
        self.angle += 0.3 * turn
        self.along, self.off = self.along + 0.1 * speed, self.off + 0.1 * np.sin(self.angle)
        lost = abs(self.off) > 0.5
        simulator = {"robot_speed": speed, "proximity_penalty": -0.1 if lost else 0.0,
                     "cur_pos": [self.along, 0.0, self.off], "timestamp": self.t / 30}  # fmt: skip
        if not lost:
            simulator["lane_position"] = {"dist": self.off, "angle_deg": float(np.degrees(self.angle))}
        return self.observe(), float(speed - abs(self.off)), lost or self.t >= 20, {"Simulator": simulator}


class ObstacleSpawningWrapper(gym.Wrapper):
    def __init__(self, env, env_config):
        super().__init__(env)
        self.env_config = env_config

    def reset(self):
        return self.env.reset()

    def step(self, action):
        obs, reward, done, info = self.env.step(action)
        return obs, reward - (1.0 if self.env_config["spawn_obstacles"] else 0.0), done, info


class OrientationRewardWrapper(gym.RewardWrapper):
    def reset(self):
        return self.env.reset()

    def step(self, action):
        obs, reward, done, info = self.env.step(action)
        info["custom_rewards"] = {"orientation": float(np.cos(obs[1]))}
        return obs, self.reward(reward), done, info

    def reward(self, reward):
        return reward


def launch_and_wrap_env(env_config, env_id=0):
    env = Simulator(env_config["seed"] + env_id)
    return OrientationRewardWrapper(ObstacleSpawningWrapper(env, env_config))


def on_episode_start(info):
    episode = info["episode"]
    for key in ("robot_speed", "robot_cur_pos", "deviation_centerline", "reward_orientation"):
        episode.user_data[key] = []
    episode.user_data["collision_risk_step_cnt"] = 0
    episode.hist_data["sampled_actions"] = []
    episode.hist_data["_robot_coordinates"] = []


def on_episode_step(info):
    episode = info["episode"]
    episode.hist_data["sampled_actions"].append(np.clip(episode.last_action_for(), *LIMITS))
    env_info = episode.last_info_for()
    if env_info is None:
        return
    simulator, data = env_info["Simulator"], episode.user_data
    data["robot_speed"].append(simulator["robot_speed"])
    data["collision_risk_step_cnt"] += simulator["proximity_penalty"] < 0.0
    data["reward_orientation"].append(env_info.get("custom_rewards", {}).get("orientation", 0.0))
    if "lane_position" in simulator.keys():
        data["deviation_centerline"].append(abs(simulator["lane_position"]["dist"]))
    sim = info["env"].get_unwrapped()[0].unwrapped
    assert type(sim) is Simulator and sim.distortion
    data["robot_cur_pos"].append(np.array(simulator["cur_pos"]) / sim.road_tile_size)


def on_episode_end(info):
    episode = info["episode"]
    data = episode.user_data
    assert len(data["robot_speed"]) == episode.length
    episode.custom_metrics["mean_robot_speed"] = np.mean(data["robot_speed"])
    episode.custom_metrics["deviation_centerline"] = np.mean(data["deviation_centerline"] or [0.5])
    episode.custom_metrics["collision_risk_step_cnt"] = data["collision_risk_step_cnt"]
    episode.custom_metrics["reward_orientation"] = np.sum(data["reward_orientation"])
    episode.hist_data["_robot_coordinates"].append(data["robot_cur_pos"])


def enable_obstacles(env):
    semi_unwrapped = env
    while not isinstance(semi_unwrapped, ObstacleSpawningWrapper):
        semi_unwrapped = semi_unwrapped.env
    semi_unwrapped.env_config["spawn_obstacles"] = True


def on_train_result(result):
    episodes_this_iter = result["result"]["episodes_this_iter"]
    timesteps_this_iter = result["result"]["timesteps_this_iter"]
    stats = result["result"]["hist_stats"]
    stats["sampled_actions"] = stats["sampled_actions"][:timesteps_this_iter]
    stats["_robot_coordinates"] = stats["_robot_coordinates"][:episodes_this_iter]
    stats["episode_lengths"] = stats["episode_lengths"][:episodes_this_iter]
    stats["episode_reward"] = stats["episode_reward"][:episodes_this_iter]
    if result["result"].get("timesteps_total") >= 200:
        trainer = result["trainer"]
        trainer.workers.foreach_worker_with_index(
            lambda worker, index: worker.foreach_env(lambda env: enable_obstacles(env))
        )


class TrajectoryLogger(Logger):
    def __init__(self, config, logdir, trial):
        super().__init__(config, logdir, trial)
        self.trial, self.experiment_tag = trial, trial.experiment_tag
        valid_config = config.copy()
        del valid_config["callbacks"]
        self.flat_config = flatten_dict(valid_config, delimiter="/")
        assert self.flat_config["env_config/seed"] == 3 and self.flat_config["model/fcnet_hiddens"] == [16]

    def on_result(self, result):
        step = result.get(TIMESTEPS_TOTAL) or result[TRAINING_ITERATION]
        trajectories = result["hist_stats"]["_robot_coordinates"]
        assert len(trajectories) == result["episodes_this_iter"] and len(trajectories[0][0]) == 3
        logged = {key: result[key] for key in ("episode_reward_mean", "custom_metrics", "sampler_perf", "info", "perf")}
        flat = flatten_dict(logged, delimiter="/")
        assert "custom_metrics/mean_robot_speed_mean" in flat
        with open(os.path.join(self.logdir, "trajectories.txt"), "a") as file:
            file.write(f"{step} {len(trajectories)} {len(flat)}\n")

    def flush(self):
        assert self.trial is not None


def main():
    ray.init(num_cpus=2, include_dashboard=False)
    register_env("Duckietown", launch_and_wrap_env)
    config = {
        "env": "Duckietown",
        "env_config": {"seed": 3, "mode": "train", "spawn_obstacles": False},
        "callbacks": {"on_episode_start": on_episode_start, "on_episode_step": on_episode_step,
                      "on_episode_end": on_episode_end, "on_train_result": on_train_result},
        "framework": "torch", "num_workers": 0, "train_batch_size": 200, "sgd_minibatch_size": 64, "num_sgd_iter": 2,
        "rollout_fragment_length": 50, "lambda": 0.95, "lr": 5.0e-5, "vf_loss_coeff": 0.5, "entropy_coeff": 0.0,
        "clip_param": 0.2, "vf_clip_param": 0.2, "grad_clip": 0.5, "batch_mode": "truncate_episodes",
        "observation_filter": "NoFilter", "model": {"fcnet_hiddens": [16]},
    }  # fmt: skip
    print(pretty_print(config))
    analysis = tune.run(
        PPOTrainer, stop={"timesteps_total": 600}, config=config, local_dir="./artifacts", checkpoint_at_end=True,
        trial_name_creator=lambda trial: trial.trainable_name, name="Debug_0000", keep_checkpoints_num=1,
        checkpoint_score_attr="episode_reward_mean", checkpoint_freq=1, restore=None, verbose=0,
        loggers=[CSVLogger, TBXLogger, TrajectoryLogger],
    )  # fmt: skip
    (trial,) = analysis.trials
    assert os.path.basename(trial.logdir).startswith("PPO"), trial.logdir
    metrics = trial.last_result["custom_metrics"]
    assert metrics["reward_orientation_max"] <= 20 and metrics["mean_robot_speed_mean"] <= 1.0
    assert len(trial.last_result["hist_stats"]["sampled_actions"]) == trial.last_result["timesteps_this_iter"]
    lines = open(os.path.join(trial.logdir, "trajectories.txt")).read().splitlines()
    assert [line.split()[0] for line in lines] == ["200", "400", "600"]
    # from the second iteration on there are obstacles: a reward of less than -1 + 1 in each step
    assert trial.last_result["episode_reward_max"] < 20, trial.last_result["episode_reward_max"]

    checkpoint = sorted({os.path.dirname(path) for path in glob.glob("artifacts/**/checkpoint_0*/*", recursive=True)})[
        -1
    ]
    assert checkpoint.endswith("checkpoint_000003"), checkpoint
    config["explore"] = False
    trainer = PPOTrainer(config=config)
    trainer.restore(os.path.join(checkpoint, "checkpoint-%d" % int(checkpoint[-6:])))
    env = launch_and_wrap_env(config["env_config"], 1)
    obs, done = env.reset(), False
    actions = [trainer.compute_action(obs, explore=False) for _ in range(2)]
    assert np.array_equal(*actions)
    while not done:
        obs, reward, done, info = env.step(trainer.compute_action(obs, explore=False))
    assert info["Simulator"]["timestamp"] > 0 and env.unwrapped.distortion
    trainer.stop()
    ray.shutdown()
    print("ok program_lane_following_callbacks")


if __name__ == "__main__":
    main()
