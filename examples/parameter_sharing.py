"""Policies that share a layer: four poles, two policies with heads of their own behind one network; PPO.

python examples/parameter_sharing.py --iterations 40
"""

import argparse

import torch
from torch import nn

from rlframe.agents.ppo import PPOTrainer
from rlframe.examples.env.multi_agent import MultiAgentCartPole
from rlframe.models import ModelCatalog
from rlframe.models.torch.torch_modelv2 import TorchModelV2
from rlframe.policy.policy import PolicySpec

#: One for each process: what all policies there see through. Each policy's learner steps move it.
SHARED = nn.Sequential(nn.Linear(4, 64), nn.Tanh())


class SharedFeatures(TorchModelV2, nn.Module):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        nn.Module.__init__(self)
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        self.shared = SHARED
        self.act, self.value = nn.Linear(64, num_outputs), nn.Linear(64, 1)

    def forward(self, input_dict, state, seq_lens):
        self.features = self.shared(input_dict["obs"])
        return self.act(self.features), state

    def value_function(self) -> torch.Tensor:
        return self.value(self.features).squeeze(1)


def main(iterations: int = 40) -> float:
    ModelCatalog.register_custom_model("shared_features", SharedFeatures)
    multiagent = {
        "policies": {"even": PolicySpec(), "odd": PolicySpec(config={"gamma": 0.98})},
        "policy_mapping_fn": lambda agent_id: ("even", "odd")[agent_id % 2],
    }
    config = {"num_workers": 0, "seed": 0, "min_iter_time_s": 0, "train_batch_size": 1000, "lr": 1e-3,
              "sgd_minibatch_size": 250, "num_sgd_iter": 8, "vf_loss_coeff": 0.01, "multiagent": multiagent,
              "env_config": {"num_agents": 4}, "model": {"custom_model": "shared_features"}}  # fmt: skip
    trainer, best = PPOTrainer(config, env=MultiAgentCartPole), 0.0
    even, odd = (trainer.get_policy(policy_id) for policy_id in ("even", "odd"))
    for iteration in range(iterations):
        best = max(best, trainer.train()["episode_reward_mean"])
        print(f"{iteration + 1}: best mean return of the four together {best:.0f}")
        assert torch.equal(even.model.shared[0].weight, odd.model.shared[0].weight)
        if best >= 600:
            break
    trainer.stop()
    return best


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=40)
    main(parser.parse_args().iterations)
