"""Who influences whom: a DQN policy used as a critic outside of any trainer.

Uses RLlib as a study of intrinsic influence among agents does (its impact approximator): `DQNTorchPolicy` made by hand
from spaces and three config keys, `compute_q_values` on `policy.target_models[policy.model]`, `learn_on_batch` of a
batch that the program filled itself.
"""

import gym
import numpy as np
import torch

from rlframe.agents.dqn.dqn_torch_policy import DQNTorchPolicy, compute_q_values
from rlframe.policy.sample_batch import SampleBatch


class Impact:
    def __init__(self, observation_space, action_space):
        self.critic = DQNTorchPolicy(observation_space, action_space, {"num_gpus": 0, "num_workers": 1, "framework": "torch"})
        self.network = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=1e-2)

    def q_values(self, obs):
        found = compute_q_values(self.critic, self.critic.target_models[self.critic.model], {"obs": obs},
                                 explore=False, is_training=False)
        return found[0]

    def train(self, batch):
        return self.critic.learn_on_batch(batch)

    def update(self, obs):
        values = self.q_values(obs).detach().reshape(-1, 2, 2)
        samples = torch.stack([values.max(1).values.mean(1), values.max(2).values.mean(1)], 1)
        loss = torch.nn.functional.mse_loss(self.network(obs), samples)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss)


def main():
    np.random.seed(0)
    torch.manual_seed(0)
    space = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
    impact = Impact(space, gym.spaces.Discrete(4))
    for _ in range(60):
        obs = np.random.uniform(-1, 1, (64, 3)).astype(np.float32)
        actions = np.random.randint(0, 4, 64)
        batch = SampleBatch({
            "obs": obs, "new_obs": obs, "actions": actions, "rewards": (actions == 2).astype(np.float32),
            "dones": np.ones(64, bool), "weights": np.ones(64, np.float32),
        })  # fmt: skip
        info = impact.train(batch)
    assert "learner_stats" in info
    before = impact.q_values(torch.zeros(1, 3))
    impact.critic.update_target()
    after = impact.q_values(torch.zeros(1, 3))
    assert before.shape == (1, 4)
    assert not torch.allclose(before, after), "the target network is the online one"
    losses = [impact.update(torch.rand(32, 3)) for _ in range(40)]
    assert losses[-1] < losses[0], losses
    print("ok program_impact_critic")


if __name__ == "__main__":
    main()
