"""A dungeon of glyphs: one script for IMPALA, A2C, DQN and PPO, with a config full of keys that RLlib does not know.

Uses RLlib as facebookresearch/minihack does (minihack/agent/rllib/train.py, models.py, envs.py): copies of four default
configs, `merge_dicts` of them with a whole experiment's flags (rogue keys and all) and of MODEL_DEFAULTS with its own,
`with_updates(default_config=config)` so that the keys are known, a custom model of a dict of integers below an LSTM that
sees the last action and reward, an object in `custom_model_config`, spaces that are properties, `tune.run` of a class.
"""

from collections import OrderedDict

import gym
import numpy as np
import ray
import torch
from rlframe import tune
from rlframe.agents import a3c, dqn, impala, ppo
from rlframe.models import ModelCatalog
from rlframe.models.catalog import MODEL_DEFAULTS
from rlframe.models.torch.torch_modelv2 import TorchModelV2
from rlframe.tune.registry import register_env
from rlframe.tune.utils import merge_dicts
from rlframe.utils.annotations import override
from torch import nn

NAME_TO_TRAINER: dict = {
    "impala": (impala.DEFAULT_CONFIG.copy(), impala.ImpalaTrainer),
    "a2c": (a3c.a2c.A2C_DEFAULT_CONFIG.copy(), a3c.A2CTrainer),
    "dqn": (dqn.DEFAULT_CONFIG.copy(), dqn.DQNTrainer),
    "ppo": (ppo.DEFAULT_CONFIG.copy(), ppo.PPOTrainer),
}

EXPERIMENT = {
    "name": "rooms", "seed": 7, "wandb": False, "project": "project_name", "penalty_step": -0.001, "character": "mon",
    "obs_keys": "glyphs,blstats", "num_gpus": 0, "num_cpus": 1, "num_actors": 2, "total_steps": 200,
    "train_batch_size": 40, "unroll_length": 10, "use_lstm": True, "hidden_dim": 16, "embedding_dim": 4,
    "msg": {"model": "none", "hidden_dim": 8}, "state_counter": "none", "lr": 0.0002, "gamma": 0.999,
    "reward_clipping": "none", "decay": 0.99, "momentum": 0, "grad_clip": 40,
    "impala": {"entropy_coeff": 0.001, "vf_loss_coeff": 0.5, "epsilon": 0.000001},
    "dqn": {"double_q": True, "dueling": True, "noisy": False, "prioritized_replay": True, "n_step": 5,
            "buffer_size": 1000, "target_network_update_freq": 50, "learning_starts": 50,
            "prioritized_replay_beta_annealing_timesteps": 500, "timesteps_per_iteration": 100,
            "model": {"use_lstm": False}, "exploration_config": {"epsilon_timesteps": 1000}},
    "ppo": {"rollout_fragment_length": 20, "train_batch_size": 80, "sgd_minibatch_size": 32, "num_sgd_iter": 2,
            "entropy_coeff": 0.0001, "vf_loss_coeff": 0.5, "model": {"vf_share_layers": True}},
    "a2c": {"rollout_fragment_length": 20, "train_batch_size": 40, "entropy_coeff": 0.001, "vf_loss_coeff": 0.1,
            "sample_async": False},
}  # fmt: skip


class Flags:
    """What a configuration library hands out: keys as attributes, and no dict."""

    def __init__(self, values):
        self.__dict__.update(values)


class Dungeon:
    def __init__(self):
        self.observation_space = gym.spaces.Dict(
            {
                "glyphs": gym.spaces.Box(0, 5, (3, 5), np.int16),
                "blstats": gym.spaces.Box(-(2**31), 2**31 - 1, (4,), np.int64),
                "message": gym.spaces.Box(0, 255, (8,), np.uint8),
            }
        )
        self.action_space = gym.spaces.Discrete(4)

    def observe(self):
        glyphs = np.ones((3, 5), np.int16)
        glyphs[2, 4], glyphs[self.y, self.x] = 3, 2
        stats = np.array([self.x, self.y, self.t, 10], np.int64)
        return {"glyphs": glyphs, "blstats": stats, "message": np.zeros(8, np.uint8)}

    def reset(self):
        self.x = self.y = self.t = 0
        return self.observe()

    def step(self, action):
        self.t += 1
        dx, dy = ((1, 0), (0, 1), (-1, 0), (0, -1))[int(action)]
        self.x, self.y = int(np.clip(self.x + dx, 0, 4)), int(np.clip(self.y + dy, 0, 2))
        won = (self.x, self.y) == (4, 2)
        return self.observe(), 1.0 if won else -0.001, won or self.t >= 30, {"end_status": int(won)}


class RLLibNLEEnv(gym.Env):
    def __init__(self, env_config):
        self._observation_keys = sorted(env_config.get("observation_keys", ("blstats", "glyphs")))
        assert env_config["flags"].character == "mon"
        self.gym_env = Dungeon()

    @property
    def action_space(self):
        return self.gym_env.action_space

    @property
    def observation_space(self):
        return gym.spaces.Dict({key: self.gym_env.observation_space[key] for key in self._observation_keys})

    def _process_obs(self, obs):
        return OrderedDict({key: obs[key] for key in self._observation_keys})

    def reset(self):
        return self._process_obs(self.gym_env.reset())

    def step(self, action):
        obs, reward, done, info = self.gym_env.step(action)
        return self._process_obs(obs), reward, done, info


class NetHackModel(TorchModelV2, nn.Module):
    def __init__(self, observation_space, action_space, num_outputs, model_config, name, **kwargs):
        TorchModelV2.__init__(self, observation_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        flags = model_config["custom_model_config"]["flags"]
        self.num_outputs = num_outputs or flags.hidden_dim
        height, width = observation_space.original_space["glyphs"].shape
        self.embed = nn.Embedding(6, flags.embedding_dim)
        self.base = nn.Sequential(nn.Linear(height * width * flags.embedding_dim + 4, flags.hidden_dim), nn.ELU())
        self.policy = nn.Linear(flags.hidden_dim, self.num_outputs)
        self.baseline = nn.Linear(flags.hidden_dim, 1)

    @override(TorchModelV2)
    def forward(self, x, state, seq_lens):
        glyphs = self.embed(x["obs"]["glyphs"].long()).flatten(1)
        self.core = self.base(torch.cat([glyphs, x["obs"]["blstats"].float()], dim=1))
        return self.policy(self.core), state

    @override(TorchModelV2)
    def value_function(self):
        return self.baseline(self.core).squeeze(-1)


def train(algo):
    cfg = Flags(dict(EXPERIMENT, algo=algo))
    register_env("RLlibNLE-v0", RLLibNLEEnv)
    config, trainer = NAME_TO_TRAINER[cfg.algo]
    args_config = dict(EXPERIMENT, algo=algo)
    algo_config = args_config.pop(cfg.algo)
    for other in NAME_TO_TRAINER:
        if other != cfg.algo:
            args_config.pop(other, None)
    config = merge_dicts(config, args_config)
    own_model = {
        "custom_model": "rllib_nle_model", "custom_model_config": {"flags": cfg, "algo": cfg.algo},
        "use_lstm": cfg.use_lstm, "lstm_use_prev_reward": True, "lstm_use_prev_action": True,
        "lstm_cell_size": cfg.hidden_dim,
    }  # fmt: skip
    config = merge_dicts(config, {
        "framework": "torch", "num_gpus": cfg.num_gpus, "seed": cfg.seed, "env": "RLlibNLE-v0",
        "env_config": {"flags": cfg, "observation_keys": cfg.obs_keys.split(","), "name": "rooms"},
        "train_batch_size": cfg.train_batch_size, "model": merge_dicts(MODEL_DEFAULTS, own_model),
        "num_workers": cfg.num_cpus, "num_envs_per_worker": int(cfg.num_actors / cfg.num_cpus),
        "evaluation_interval": 100, "evaluation_num_episodes": 50, "evaluation_config": {"explore": False},
        "rollout_fragment_length": cfg.unroll_length,
    })  # fmt: skip
    config = merge_dicts(config, algo_config)
    config["min_iter_time_s"] = 0  # the original trains for hours
    trainer_class = trainer.with_updates(default_config=config)
    analysis = tune.run(trainer_class, stop={"timesteps_total": cfg.total_steps}, config=config, name=cfg.name,
                        callbacks=[], verbose=0)  # fmt: skip
    (trial,) = analysis.trials
    assert trial.last_result["timesteps_total"] >= cfg.total_steps
    assert trial.last_result["info"]["learner"]["default_policy"]
    assert trial.config["penalty_step"] == -0.001
    return trainer_class, config


def main():
    ray.init(num_gpus=0, num_cpus=3)
    ModelCatalog.register_custom_model("rllib_nle_model", NetHackModel)
    for algo in ("impala", "dqn", "ppo"):  # any of NAME_TO_TRAINER; one a run in the original
        trainer_class, config = train(algo)
    trainer = trainer_class(config=dict(config, num_workers=0))
    policy = trainer.get_policy()
    assert policy.is_recurrent() and [len(s) for s in policy.get_initial_state()] == [16, 16]
    trainer.stop()
    ray.shutdown()
    print("ok program_dungeon_many_trainers")


if __name__ == "__main__":
    main()
