"""A competition's starter kit on images: a Trainer with a loop of its own, a random policy in build_trainer, a CNN.

Uses RLlib as AIcrowd/neurips2020-procgen-starter-kit does (algorithms/custom_random_agent, algorithms/random_policy,
models/impala_cnn_torch.py, callbacks.py, train.py): `_init`, `_default_config` and `_name` of a `Trainer` subclass,
`build_trainer(default_config={})`, `register_trainable`, `run_experiments`, and callbacks without keyword-only names.
"""

import time

import gym
import numpy as np
import ray
from ray.tune.registry import register_env, register_trainable
from rlframe import tune
from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.agents.trainer import Trainer, with_common_config
from rlframe.agents.trainer_template import build_trainer
from rlframe.models import ModelCatalog
from rlframe.models.torch.torch_modelv2 import TorchModelV2
from rlframe.policy import Policy
from rlframe.utils.annotations import override
from rlframe.utils.framework import try_import_torch

torch, nn = try_import_torch()


class Coins(gym.Env):
    """A bright square of an image is to be collected: the action names its quarter."""

    def __init__(self, config=None):
        self.observation_space = gym.spaces.Box(0, 255, (16, 16, 3), np.uint8)
        self.action_space = gym.spaces.Discrete(4)
        self.random, self.started = np.random.RandomState(0), time.time()

    def frame(self):
        self.quarter = self.random.randint(4)
        image = np.zeros((16, 16, 3), np.uint8)
        y, x = divmod(self.quarter, 2)
        image[8 * y : 8 * y + 8, 8 * x : 8 * x + 8] = 200
        return image

    def reset(self):
        self.steps = 0
        return self.frame()

    def step(self, action):
        reward = float(action == self.quarter)
        self.steps += 1
        throughput = self.steps / max(time.time() - self.started, 1e-6)
        return self.frame(), reward, self.steps == 10, {"timestep_throughput": throughput}


class CustomRandomAgent(Trainer):
    """Acts at random, samples for itself and learns nothing."""

    _name = "CustomRandomAgent"
    _default_config = with_common_config({"rollouts_per_iteration": 10})

    @override(Trainer)
    def _init(self, config, env_creator):
        self.env = env_creator(config["env_config"])

    @override(Trainer)
    def step(self):
        rewards, steps = [], 0
        for _ in range(self.config["rollouts_per_iteration"]):
            self.env.reset()
            done, total = False, 0.0
            while not done:
                _, reward, done, _ = self.env.step(self.env.action_space.sample())
                total += reward
                steps += 1
            rewards.append(total)
        return {"episode_reward_mean": np.mean(rewards), "timesteps_this_iter": steps}


class RandomPolicy(Policy):
    def __init__(self, observation_space, action_space, config):
        Policy.__init__(self, observation_space, action_space, config)
        self.w = []

    def compute_actions(
        self,
        obs_batch,
        state_batches,
        prev_action_batch=None,
        prev_reward_batch=None,
        info_batch=None,
        episodes=None,
        **kwargs,
    ):
        return [self.action_space.sample() for _ in obs_batch], [], {}

    def learn_on_batch(self, samples):
        self.w.append(samples.count)
        return {}

    def get_weights(self):
        return {"w": self.w}

    def set_weights(self, weights):
        self.w = weights["w"]


RandomPolicyTrainer = build_trainer(name="RandomPolicyTrainer", default_policy=RandomPolicy, default_config={})


class ResidualCNN(TorchModelV2, nn.Module):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        h, w, c = obs_space.shape
        self.conv = nn.Conv2d(c, 4, 3, stride=2, padding=1)
        self.block = nn.Conv2d(4, 4, 3, padding=1)
        self.hidden = nn.Linear(4 * (h // 2) * (w // 2), 32)
        self.logits_fc = nn.Linear(32, num_outputs)
        self.value_fc = nn.Linear(32, 1)

    @override(TorchModelV2)
    def forward(self, input_dict, state, seq_lens):
        x = input_dict["obs"].float() / 255.0
        x = self.conv(x.permute(0, 3, 1, 2))
        x = nn.functional.relu(x + self.block(nn.functional.relu(x)))
        x = nn.functional.relu(self.hidden(torch.flatten(x, start_dim=1)))
        self._value = self.value_fc(x)
        return self.logits_fc(x), state

    @override(TorchModelV2)
    def value_function(self):
        assert self._value is not None, "must call forward() first"
        return self._value.squeeze(1)


class Throughput(DefaultCallbacks):
    def on_episode_end(self, worker, base_env, policies, episode, **kwargs):
        value = episode.last_info_for()["timestep_throughput"]
        episode.custom_metrics["timestep_throughput"] = value
        episode.hist_data["timestep_throughput"] = [value]


def main():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    register_env("coins", Coins)
    ModelCatalog.register_custom_model("residual_cnn", ResidualCNN)
    register_trainable("custom/CustomRandomAgent", CustomRandomAgent)

    agent = CustomRandomAgent(env="coins", config={"rollouts_per_iteration": 20})
    result = agent.train()
    assert 1 < result["episode_reward_mean"] < 4 and result["timesteps_total"] == 200, result

    trainer = RandomPolicyTrainer(
        env="coins",
        config={"num_workers": 0, "simple_optimizer": True, "train_batch_size": 100, "rollout_fragment_length": 50},
    )
    result = trainer.train()
    assert result["timesteps_total"] >= 100 and trainer.get_policy().w
    path = trainer.save()
    again = RandomPolicyTrainer(env="coins", config={"num_workers": 0})
    again.restore(path)
    assert again.get_policy().w == trainer.get_policy().w

    (ppo,) = tune.run_experiments({
        "procgen-ppo": {
            "env": "coins", "run": "PPO", "stop": {"timesteps_total": 400}, "checkpoint_at_end": True,
            "local_dir": "./results",
            "config": {
                "framework": "torch", "num_workers": 0, "gamma": 0.9, "lr": 5e-3, "train_batch_size": 200,
                "rollout_fragment_length": 100, "sgd_minibatch_size": 50, "num_sgd_iter": 2, "num_envs_per_worker": 2,
                "batch_mode": "truncate_episodes", "observation_filter": "NoFilter", "vf_share_layers": True,
                "vf_loss_coeff": 0.5, "use_pytorch": True, "callbacks": Throughput,
                "model": {"custom_model": "residual_cnn", "custom_options": {}},
            },
        },
    }, verbose=0)  # fmt: skip
    (plain,) = tune.run_experiments({
        "procgen-random": {
            "env": "coins", "run": "custom/CustomRandomAgent", "stop": {"training_iteration": 2},
            "local_dir": "./results", "config": {"rollouts_per_iteration": 3, "num_workers": 0},
        },
    }, verbose=0)  # fmt: skip
    assert ppo.last_result["custom_metrics"]["timestep_throughput_mean"] > 0
    assert len(ppo.last_result["hist_stats"]["timestep_throughput"]) >= 20
    assert plain.last_result["timesteps_total"] == 60, plain.last_result
    ray.shutdown()
    print("ok program_procgen_random_agents")


if __name__ == "__main__":
    main()
