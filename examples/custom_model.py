"""A model of your own, with options, registered by name.

python examples/custom_model.py --iterations 3
"""

import argparse

import torch
from torch import nn

from rlframe.agents.dqn import DQNTrainer
from rlframe.models import ModelCatalog
from rlframe.models.torch.torch_modelv2 import TorchModelV2


class FourierFeatures(TorchModelV2, nn.Module):
    """Random Fourier features of the observation, then one hidden layer."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, features=64):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.register_buffer("frequencies", torch.randn(obs_space.shape[0], features))
        self.out = nn.Linear(2 * features, num_outputs)

    def forward(self, input_dict, state, seq_lens):
        waves = input_dict["obs"].float() @ self.frequencies
        self.features = torch.cat([waves.sin(), waves.cos()], dim=1)
        return torch.relu(self.out(self.features)), state

    def value_function(self):
        return self.features.mean(1)


def main(iterations: int = 3) -> float:
    ModelCatalog.register_custom_model("fourier", FourierFeatures)
    config = {"seed": 0, "model": {"custom_model": "fourier", "custom_model_config": {"features": 32}}}
    trainer = DQNTrainer(config, env="CartPole-v1")
    for _ in range(iterations):
        result = trainer.train()
    print(f"return {result['episode_reward_mean']:.1f}")
    trainer.stop()
    return float(result["episode_reward_mean"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=3)
    main(parser.parse_args().iterations)
