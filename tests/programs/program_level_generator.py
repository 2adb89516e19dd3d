"""Levels of games made step by step: a trainer subclass around train, save and setup, with keys of its own.

Uses RLlib as smearle/control-pcgrl does (rl/train_ctrl.py, rl/callbacks.py, rl/models.py): `PPOTrainer` subclassed under
its own name with `get_default_config().update(...)`, `setup` that counts weights, `save` and `train` overridden,
`workers.foreach_env`, `partial(Callbacks, cfg=...)`, histograms read from `hist_stats`, `load_checkpoint`, `evaluate()`.
"""

import os
import tempfile
from functools import partial

import gym
import numpy as np
from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.agents.ppo import PPOTrainer as RlLibPPOTrainer
from rlframe.models import ModelCatalog
from rlframe.models.torch.torch_modelv2 import TorchModelV2
from rlframe.tune.logger import pretty_print
from ray.tune.registry import register_env
import torch
from torch import nn


class Holes(gym.Env):
    """Tiles of a map are set one after the other; the number of walls shall be the target of the episode."""

    def __init__(self, cfg):
        self.width, self.conditionals = cfg["map_width"], cfg["conditionals"]
        self.cond_bounds = {"walls": (0, self.width**2)}
        self.ctrl_metrics = self.conditionals
        self.observation_space = gym.spaces.Box(0.0, 1.0, (self.width, self.width, 3), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.random = np.random.RandomState(0)

    def observe(self):
        y, x = divmod(self.n % self.width**2, self.width)
        here = np.zeros_like(self.map)
        here[y, x] = 1
        target = np.full_like(self.map, self.metric_trgs["walls"] / self.width**2)
        return np.stack([self.map, here, target], axis=-1).astype(np.float32)

    def reset(self):
        self.map, self.n = np.zeros((self.width, self.width)), 0
        self.metric_trgs = {"walls": int(self.random.randint(0, self.width**2 + 1))}
        self.metrics = {"walls": 0}
        return self.observe()

    def step(self, action):
        y, x = divmod(self.n % self.width**2, self.width)
        before = abs(self.metrics["walls"] - self.metric_trgs["walls"])
        self.map[y, x] = action
        self.n += 1
        self.metrics = {"walls": int(self.map.sum())}
        self._rep_stats = {"walls": self.metrics["walls"], "regions": 1}
        reward = float(before - abs(self.metrics["walls"] - self.metric_trgs["walls"]))
        return self.observe(), reward, self.n == self.width**2, {}


class StatsCallbacks(DefaultCallbacks):
    def __init__(self, cfg, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.cfg = cfg

    def on_episode_start(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        env = base_env.get_sub_environments()[env_index]
        assert episode.length == 0
        for name in env.ctrl_metrics:
            episode.hist_data.update({f"{name}-trg": None})
        for name in env.metrics:
            episode.hist_data.update({f"{name}-val": None})

    def on_episode_end(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        env = base_env.get_sub_environments()[env_index]
        episode.custom_metrics.update({k: [v] for k, v in env.unwrapped._rep_stats.items()})
        for name in env.ctrl_metrics:
            episode.hist_data.update({f"{name}-trg": [env.metric_trgs[name]]})
        for name in env.metrics:
            episode.hist_data.update({f"{name}-val": [env.metrics[name]]})


class NCA(TorchModelV2, nn.Module):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name, n_hid_filters=8):
        nn.Module.__init__(self)
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.l1 = nn.Conv2d(obs_space.shape[-1], n_hid_filters, 3, padding=1)
        self.l2 = nn.Conv2d(n_hid_filters, n_hid_filters, 1)
        cells = n_hid_filters * obs_space.shape[0] * obs_space.shape[1]
        self.action_branch, self.value_branch = nn.Linear(cells, num_outputs), nn.Linear(cells, 1)

    def value_function(self):
        return torch.reshape(self.value_branch(self._features), [-1])

    def forward(self, input_dict, state, seq_lens):
        x = nn.functional.relu(self.l1(input_dict["obs"].permute(0, 3, 1, 2)))
        self._features = nn.functional.relu(self.l2(x)).reshape(x.size(0), -1)
        return self.action_branch(self._features), []


class PPOTrainer(RlLibPPOTrainer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.checkpoint_path_file = kwargs["config"]["checkpoint_path_file"]
        bounds = self.workers.foreach_env(lambda env: env.unwrapped.cond_bounds)
        bounds = [bound for of_worker in bounds for bound in of_worker if bound is not None][0]
        self.metric_ranges = {k: v[1] - v[0] for k, v in bounds.items()}

    def setup(self, config):
        made = super().setup(config)
        weights = self.get_weights()["default_policy"]
        self.n_params = sum(int(np.prod(v.shape)) for v in weights.values())
        print(self.get_policy("default_policy").model)
        return made

    @classmethod
    def get_default_config(cls):
        config = RlLibPPOTrainer.get_default_config()
        config.update({"checkpoint_path_file": None, "wandb": {"project": "PCGRL", "name": "default_name"}})
        return config

    def save(self, *args, **kwargs):
        path = super().save(*args, **kwargs)
        with open(self.checkpoint_path_file, "w") as file:
            file.write(path)
        return path

    def train(self, *args, **kwargs):
        result = super().train(*args, **kwargs)
        result["fps"] = result["timesteps_this_iter"] / result["time_this_iter_s"]
        if len(result["custom_metrics"]) > 0:
            for name, width in self.metric_ranges.items():
                pairs = zip(result["hist_stats"][f"{name}-trg"], result["hist_stats"][f"{name}-val"])
                result["hist_stats"][f"{name}-scc"] = [1 - abs(val - trg) / width for trg, val in pairs]
        return result


def main():
    folder = tempfile.mkdtemp()
    cfg = {"map_width": 4, "conditionals": ["walls"]}
    ModelCatalog.register_custom_model("custom_model", NCA)
    register_env("pcgrl", Holes)
    config = {
        "env": "pcgrl", "framework": "torch", "num_workers": 0, "num_gpus": 0, "env_config": cfg, "num_envs_per_worker": 4,
        "render_env": False, "lr": 5e-3, "gamma": 0.9, "train_batch_size": 320, "sgd_minibatch_size": 80, "num_sgd_iter": 2,
        "model": {"custom_model": "custom_model", "custom_model_config": {"n_hid_filters": 8}},
        "evaluation_num_episodes": 2, "evaluation_interval": 1, "evaluation_config": {"explore": False},
        "logger_config": {"type": "ray.tune.logger.TBXLogger", "logdir": folder},
        "callbacks": partial(StatsCallbacks, cfg=cfg), "explore": True,
        "checkpoint_path_file": os.path.join(folder, "checkpoint_path.txt"),
    }  # fmt: skip
    print(pretty_print(config.copy()))
    trainer = PPOTrainer(env="pcgrl", config=config)
    assert trainer.n_params == sum(p.numel() for p in trainer.get_policy().model.parameters())
    for _ in range(2):
        result = trainer.train()
    assert result["fps"] > 0 and len(result["hist_stats"]["walls-scc"]) >= 20, sorted(result["hist_stats"])
    assert 0 <= result["custom_metrics"]["walls_mean"] <= 16
    assert "episode_reward_mean" in result["evaluation"]
    weights = trainer.get_weights()["default_policy"]
    trainer.save()
    trainer.stop()

    again = PPOTrainer(env="pcgrl", config=config)
    with open(config["checkpoint_path_file"]) as file:
        again.load_checkpoint(checkpoint_path=file.read())
    assert all(np.array_equal(weights[k], v) for k, v in again.get_weights()["default_policy"].items())
    assert again.evaluate()["evaluation"]["episode_len_mean"] == 16
    again.stop()
    print("ok program_level_generator")


if __name__ == "__main__":
    main()
