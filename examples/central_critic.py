"""A critic that sees what all agents see, for actors that see their own: PPO on the two-step game.

python examples/central_critic.py --iterations 30
"""

import argparse

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from rlframe.agents.ppo import PPOTrainer
from rlframe.examples.env.two_step_game import TwoStepGame
from rlframe.models import ModelCatalog
from rlframe.models.torch.torch_modelv2 import TorchModelV2
from rlframe.policy.policy import PolicySpec

#: Models get numbers of discrete spaces as one-hot vectors.
SEEN = gym.spaces.Dict({"all": gym.spaces.MultiDiscrete([6, 6]), "own": gym.spaces.Discrete(6)})


def see_all(agent_obs, worker, base_env, policies, episode, **kwargs):
    """Gives each agent's policy everybody's observation beside its own; only the critic looks at it."""
    everything = np.array([agent_obs[agent] for agent in sorted(agent_obs)])
    return {agent: {"all": everything, "own": own} for agent, own in agent_obs.items()}


class CentralCritic(TorchModelV2, nn.Module):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        nn.Module.__init__(self)
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        self.actor = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, num_outputs))
        self.critic = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, input_dict, state, seq_lens):
        self.everything = input_dict["obs"]["all"]
        return self.actor(input_dict["obs"]["own"]), state

    def value_function(self) -> torch.Tensor:
        return self.critic(self.everything).squeeze(1)


def main(iterations: int = 30) -> float:
    ModelCatalog.register_custom_model("central_critic", CentralCritic)
    spec = PolicySpec(observation_space=SEEN, config={"model": {"custom_model": "central_critic"}})
    multiagent = {
        "policies": {"first": spec, "second": spec},
        "policy_mapping_fn": lambda agent_id: ("first", "second")[agent_id],
        "observation_fn": see_all,
    }
    config = {"num_workers": 0, "seed": 0, "multiagent": multiagent, "train_batch_size": 1000, "lr": 3e-3,
              "sgd_minibatch_size": 200, "num_sgd_iter": 10, "entropy_coeff": 0.01}  # fmt: skip
    trainer = PPOTrainer(config, env=TwoStepGame)
    for iteration in range(iterations):
        result = trainer.train()
        print(f"{iteration + 1}: mean return {result['episode_reward_mean']:.2f} of 8")
    trainer.stop()
    return float(result["episode_reward_mean"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=30)
    main(parser.parse_args().iterations)
