"""What trying a model once finds out, beside shapes."""

import warnings

import gymnasium as gym
import numpy as np
import pytest
from torch import nn

from rlframe.models.catalog import ModelCatalog
from rlframe.models.spec import CustomNetwork
from rlframe.models.torch.check_model import check_model
from rlframe.models.torch.networks import TorchCustomNetwork
from rlframe.models.torch.torch_modelv2 import TorchModelV2

OBS_SPACE = gym.spaces.Box(-1, 1, (3,), np.float32)


class InAList(TorchModelV2, nn.Module):
    """Keeps its layers in a list of Python's, or of PyTorch's."""

    def __init__(self, *args, modules=list, frozen=False, **kwargs):
        TorchModelV2.__init__(self, *args, **kwargs)
        nn.Module.__init__(self)
        self.layers = modules([nn.Linear(3, 4), nn.Linear(4, 2)])
        for layer in self.layers:
            layer.requires_grad_(not frozen)

    def forward(self, input_dict, state, seq_lens):
        for layer in self.layers:
            input_dict = {"obs": layer(input_dict["obs"])}
        return input_dict["obs"], state


def made(**options):
    config = {"custom_model": InAList, "custom_model_config": options}
    return ModelCatalog.get_model_v2(OBS_SPACE, gym.spaces.Discrete(2), 2, config, "torch")


def test_parameters_that_are_not_the_models_are_warned_of():
    with pytest.warns(UserWarning, match=r"InAList computes with 4 parameters that are not its own, .* \(4, 3\)"):
        check_model(made(), OBS_SPACE, 2)


@pytest.mark.parametrize("options", [{"modules": nn.ModuleList}, {"frozen": True}], ids=["registered", "frozen"])
def test_parameters_that_nobody_would_learn_otherwise_are_not(options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_model(made(**options), OBS_SPACE, 2)


def test_a_network_of_another_width_is_named_when_it_is_made():
    config = {"custom_model": InAList, "custom_model_config": {"modules": nn.ModuleList}}
    with pytest.raises(ValueError, match=r"InAList.*2.*3|InAList.*3.*2"):
        TorchCustomNetwork(CustomNetwork({"obs": 3}, 3, config))


def test_a_model_that_gives_q_values_where_heads_follow_says_which_keys_leave_these_out():
    with pytest.raises(ValueError, match=r"last layer 256 units\. If .* Q-values, set hiddens=\[\] and dueling=False"):
        check_model(made(modules=nn.ModuleList), OBS_SPACE, 256)
    with pytest.raises(ValueError, match=r"last layer 256 units\.$"):
        check_model(made(modules=lambda _: nn.ModuleList([nn.Linear(3, 5)])), OBS_SPACE, 256)
