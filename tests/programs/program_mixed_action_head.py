"""Choose a target, move, aim and fire: one distribution for a mixed action, registered by name.

Uses RLlib as a shooter-game project does (its multi-head action distribution): a `TorchDistributionWrapper` that reads
an attribute of its model, is sampled without `last_sample` being set by its parent, and is named in the model's config
as `custom_action_dist`; the network's number of outputs comes from `required_model_output_shape`.
"""

import gym
import numpy as np
import torch
from torch.distributions import Bernoulli, Categorical, Normal

from rlframe.agents.ppo import PPOTrainer
from rlframe.models import ModelCatalog
from rlframe.models.torch.fcnet import FullyConnectedNetwork
from rlframe.models.torch.torch_action_dist import TorchDistributionWrapper
from rlframe.models.torch.torch_modelv2 import TorchModelV2

ENEMIES = 3


class Arena(gym.Env):
    """Rewards firing at the enemy that the observation names."""

    def __init__(self, config=None):
        self.observation_space = gym.spaces.Box(0.0, 1.0, (ENEMIES,), np.float32)
        self.action_space = gym.spaces.Box(np.array([0, -1, -1, -1, -1, 0], np.float32), np.array([ENEMIES, 1, 1, 1, 1, 1], np.float32))
        self.random = np.random.RandomState(0)

    def reset(self):
        self.t, self.enemy = 0, self.random.randint(ENEMIES)
        return np.eye(ENEMIES, dtype=np.float32)[self.enemy]

    def step(self, action):
        assert action.shape == (6,), action
        hit = int(action[0]) == self.enemy and action[5] > 0.5
        self.t, self.enemy = self.t + 1, self.random.randint(ENEMIES)
        return np.eye(ENEMIES, dtype=np.float32)[self.enemy], float(hit), self.t >= 20, {}


class Heads(TorchDistributionWrapper):
    def __init__(self, inputs, model):
        super().__init__(inputs, model)
        n = model.max_enemies
        self.cat = Categorical(logits=inputs[..., :n])
        self.move = Normal(inputs[..., n : n + 4], inputs[..., n + 4 : n + 8].clamp(-5, 1).exp())
        self.fire = Bernoulli(logits=inputs[..., n + 8])

    def sample(self):
        parts = [self.cat.sample().unsqueeze(-1).float(), torch.tanh(self.move.rsample()), self.fire.sample().unsqueeze(-1)]
        self.last_sample = torch.cat(parts, dim=-1)
        return self.last_sample

    def deterministic_sample(self):
        target = self.cat.logits.argmax(-1, keepdim=True).float()
        self.last_sample = torch.cat([target, torch.tanh(self.move.loc), (self.fire.logits > 0).float().unsqueeze(-1)], dim=-1)
        return self.last_sample

    def sampled_action_logp(self):
        return self.logp(self.last_sample)

    def logp(self, x):
        squashed = x[..., 1:5].clamp(-1 + 1e-6, 1 - 1e-6)
        move = self.move.log_prob(torch.atanh(squashed)).sum(-1) - torch.log(1 - squashed.pow(2) + 1e-6).sum(-1)
        return self.cat.log_prob(x[..., 0].long().clamp(0, ENEMIES - 1)) + move + self.fire.log_prob((x[..., 5] > 0.5).float())

    def entropy(self):
        return self.cat.entropy() + self.move.entropy().sum(-1) + self.fire.entropy()

    def kl(self, other):
        return (
            torch.distributions.kl_divergence(self.cat, other.cat)
            + torch.distributions.kl_divergence(self.move, other.move).sum(-1)
            + torch.distributions.kl_divergence(self.fire, other.fire)
        )

    @staticmethod
    def required_model_output_shape(action_space, model_config):
        return model_config["custom_model_config"]["max_enemies"] + 9


class Shooter(TorchModelV2, torch.nn.Module):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name, max_enemies):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        torch.nn.Module.__init__(self)
        assert num_outputs == max_enemies + 9, num_outputs
        self.max_enemies = max_enemies
        self.net = FullyConnectedNetwork(obs_space, action_space, num_outputs, model_config, name + "_net")

    def forward(self, input_dict, state, seq_lens):
        return self.net(input_dict, state, seq_lens)

    def value_function(self):
        return self.net.value_function()


def main():
    ModelCatalog.register_custom_model("shooter", Shooter)
    ModelCatalog.register_custom_action_dist("masked_multihead", Heads)
    trainer = PPOTrainer(env=Arena, config={
        "framework": "torch", "num_workers": 0, "seed": 3, "normalize_actions": False, "clip_actions": False,
        "train_batch_size": 800, "sgd_minibatch_size": 200, "num_sgd_iter": 15, "lr": 3e-3, "entropy_coeff": 0.001,
        "gamma": 0.2,
        "model": {"custom_model": "shooter", "custom_action_dist": "masked_multihead", "fcnet_hiddens": [32],
                  "custom_model_config": {"max_enemies": ENEMIES}},
    })  # fmt: skip
    first = trainer.train()["episode_reward_mean"]
    for _ in range(8):
        last = trainer.train()["episode_reward_mean"]
    assert last > first + 3, (first, last)
    action = trainer.compute_single_action(np.eye(ENEMIES, dtype=np.float32)[1], explore=False)
    assert action.shape == (6,)
    trainer.stop()
    print("ok program_mixed_action_head")


if __name__ == "__main__":
    main()
