"""A program's subclass of the multi-action distribution gets the distributions of the action space's leaves."""

import gymnasium as gym
import torch

from rlframe.models.catalog import ModelCatalog
from rlframe.models.torch.torch_action_dist import TorchMultiActionDistribution


class Apart(TorchMultiActionDistribution):
    def logp(self, x):
        return torch.stack([d.logp(x[..., i]) for i, d in enumerate(self.flat_child_distributions)], dim=-1)


def test_a_subclass_is_bound_to_the_leaves():
    space = gym.spaces.Tuple([gym.spaces.Discrete(2), gym.spaces.Discrete(3)])
    made, width = ModelCatalog.get_action_dist(space, {"custom_action_dist": Apart})
    assert width == 5
    logp = made(torch.zeros(4, 5), None).logp(torch.zeros(4, 2, dtype=torch.int64))
    torch.testing.assert_close(logp[0].exp(), torch.tensor([1 / 2, 1 / 3]))
