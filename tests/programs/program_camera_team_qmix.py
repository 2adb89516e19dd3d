"""Cameras that track targets: QMIX for a grouped team, metrics from `_group_info`, weights of an earlier run.

Uses RLlib as XuehaiPan/mate does (examples/hrl/qmix/camera/config.py, examples/utils/callbacks.py,
examples/utils/rllib_policy.py): `{**qmix.DEFAULT_CONFIG}` and `{**MODEL_DEFAULTS}` copied into a config,
`with_agent_groups`, `rollout_fragment_length` 0 with whole episodes, `MultiCallbacks` of a partial and a class,
`on_trainer_init` that puts weights of an earlier run in, and a policy built outside a trainer with `set_state`. (Checkpoints of RLlib were
pickles that the original opens by itself; the states are pickled by the program here.)
"""

import copy
import pickle
import re
from collections import defaultdict
from functools import partial
from pathlib import Path

import numpy as np
import ray
from gym import spaces
from rlframe import tune
from rlframe.agents.callbacks import DefaultCallbacks, MultiCallbacks
from rlframe.agents.qmix import qmix
from rlframe.agents.qmix.qmix import QMixTorchPolicy
from rlframe.env.multi_agent_env import MultiAgentEnv
from rlframe.models import MODEL_DEFAULTS
from rlframe.models.catalog import ModelCatalog


class Tracking(MultiAgentEnv):
    """Three cameras choose one of three targets each; the team is paid for the share of targets in view."""

    agent_ids = ["camera_0", "camera_1", "camera_2"]

    def __init__(self, config):
        super().__init__()
        self.length = config.get("length", 8)
        self.observation_space = spaces.Box(-1.0, 1.0, (4,), np.float32)
        self.action_space = spaces.Discrete(3)
        self.random = np.random.RandomState(0)

    def observe(self):
        return {
            name: np.append(np.eye(3)[i], self.t / self.length).astype(np.float32)
            for i, name in enumerate(self.agent_ids)
        }

    def reset(self):
        self.t = 0
        return self.observe()

    def step(self, actions):
        self.t += 1
        coverage = len({int(actions[name]) for name in self.agent_ids}) / 3
        done = self.t >= self.length
        infos = {
            name: {"coverage_rate": coverage, "auxiliary_reward_x": 1.0, "raw_reward": coverage}
            for name in self.agent_ids
        }
        return self.observe(), dict.fromkeys(self.agent_ids, coverage / 3), {"__all__": done}, infos


class GroupedMetrics(DefaultCallbacks):
    WANTED = {"coverage_rate": np.mean, re.compile(r"^auxiliary_reward(\w*)$"): np.sum}

    def on_episode_start(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        episode.user_data["collector"] = defaultdict(list)

    def on_episode_step(self, *, worker, base_env, episode, env_index, **kwargs):
        for group_info in map(episode.last_info_for, episode.get_agents()):
            for info in group_info["_group_info"]:
                for key, value in info.items():
                    episode.user_data["collector"][key].append(value)

    def on_episode_end(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        for pattern, reduce in self.WANTED.items():
            for key, values in episode.user_data["collector"].items():
                if key == pattern or (not isinstance(pattern, str) and pattern.match(key)):
                    episode.custom_metrics[key] = float(reduce(values))


class TrainFromCheckpoint(DefaultCallbacks):
    def __init__(self, checkpoint_path=None):
        super().__init__()
        self.checkpoint_path = checkpoint_path

    def on_trainer_init(self, trainer, **kwargs):
        if self.checkpoint_path is None:
            return
        worker = load_checkpoint(self.checkpoint_path)
        weights = {name: state["weights"] for name, state in worker["state"].items()}
        trainer.workers.local_worker().set_weights(weights)
        trainer.workers.sync_weights()


def save_checkpoint(trainer, path):
    with Path(path).open("wb") as file:
        pickle.dump({"worker": pickle.dumps({"state": {"default_policy": trainer.get_policy().get_state()}})}, file)
    return path


def load_checkpoint(path):
    with Path(path).open("rb") as file:
        return pickle.loads(pickle.load(file)["worker"])


def make_env(config):
    env = Tracking(config or {})
    action_space = spaces.Tuple((env.action_space,) * len(env.agent_ids))
    observation_space = spaces.Tuple((env.observation_space,) * len(env.agent_ids))
    setattr(observation_space, "original_space", copy.deepcopy(observation_space))
    return env.with_agent_groups(groups={"camera": env.agent_ids}, obs_space=observation_space, act_space=action_space)


def main():
    ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False)
    tune.register_env("mate-hrl.qmix.camera", make_env)
    config = {
        **qmix.DEFAULT_CONFIG,
        "framework": "torch", "seed": 0, "env": "mate-hrl.qmix.camera", "env_config": {"length": 8},
        "horizon": 500, "callbacks": GroupedMetrics, "normalize_actions": True,
        "model": {**MODEL_DEFAULTS, "fcnet_hiddens": [512, 256], "fcnet_activation": "relu", "lstm_cell_size": 32,
                  "max_seq_len": 10000},
        "mixer": "qmix", "mixing_embed_dim": 16, "gamma": 0.9, "explore": True,
        "exploration_config": {"type": "EpsilonGreedy", "initial_epsilon": 1.0, "final_epsilon": 0.02,
                               "epsilon_timesteps": 500},
        "batch_mode": "complete_episodes", "rollout_fragment_length": 0, "buffer_size": 200,
        "timesteps_per_iteration": 160, "learning_starts": 80, "train_batch_size": 32,
        "target_network_update_freq": 100, "metrics_num_episodes_for_smoothing": 25, "grad_norm_clipping": 1000.0,
        "lr": 1e-3, "num_workers": 0, "min_iter_time_s": 0,
    }  # fmt: skip
    trainer = qmix.QMixTrainer(config=config)
    for _ in range(2):
        result = trainer.train()
    metrics = result["custom_metrics"]
    assert 1 / 3 <= metrics["coverage_rate_mean"] <= 1 and metrics["auxiliary_reward_x_mean"] == 24.0, metrics
    assert "raw_reward_mean" not in metrics and result["episode_len_mean"] == 8
    checkpoint = save_checkpoint(trainer, "checkpoint-2")
    weights = trainer.get_policy().get_weights()
    trainer.stop()

    # An agent that plays from the checkpoint, without a trainer
    env = make_env({})
    policy = QMixTorchPolicy(env.observation_space, env.action_space, config=dict(config, num_gpus=0))
    policy.set_state(load_checkpoint(checkpoint)["state"]["default_policy"])
    preprocessor = ModelCatalog.get_preprocessor_for_space(env.observation_space)
    state = policy.get_initial_state()
    observation = env.reset()["camera"]
    actions, state, *_ = policy.compute_single_action(preprocessor.transform(observation), state=state, explore=False)
    assert len(actions) == 3 and state, (actions, state)

    # A second run that goes on from the weights of the first
    both = dict(
        config, callbacks=MultiCallbacks([partial(TrainFromCheckpoint, checkpoint_path=checkpoint), GroupedMetrics])
    )
    second = qmix.QMixTrainer(config=both)
    for mine, theirs in zip(_leaves(second.get_policy().get_weights()), _leaves(weights)):
        assert np.array_equal(mine, theirs)
    assert "coverage_rate_mean" in second.train()["custom_metrics"]
    second.stop()
    ray.shutdown()
    print("ok program_camera_team_qmix")


def _leaves(tree):
    if isinstance(tree, dict):
        return [leaf for key in sorted(tree) for leaf in _leaves(tree[key])]
    return [] if tree is None else [np.asarray(tree)]


if __name__ == "__main__":
    main()
