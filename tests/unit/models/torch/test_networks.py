import copy
import pickle

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rlframe.models.preprocessors import get_preprocessor
from rlframe.models.torch.complex_input_net import ComplexInputNetwork
from rlframe.models.torch.fcnet import FullyConnectedNetwork
from rlframe.models.torch.recurrent_net import RecurrentNetwork
from rlframe.models.torch.torch_modelv2 import TorchModelV2
from rlframe.models.torch.visionnet import DEFAULT_FILTERS, ConvStack, VisionNetwork
from rlframe.utils.errors import ConfigError, UnsupportedSpaceException

OBS = spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = spaces.Discrete(2)


def fcnet(**config):
    return FullyConnectedNetwork(OBS, ACTIONS, 2, {"fcnet_hiddens": [8, 4], **config}, "net")


def test_fcnet_submodules_have_readable_names():
    names = [name for name, _ in fcnet(vf_share_layers=False).named_children()]
    assert names == ["hidden_0", "hidden_1", "output", "value_hidden_0", "value_hidden_1", "value"]


def test_fcnet_initial_rows_have_norm_one_and_heads_one_hundredth():
    net = fcnet()
    norms = {name: layer.weight.norm(dim=1) for name, layer in net.named_children()}
    for name, norm in norms.items():
        expected = 0.01 if name in ("output", "value") else 1.0
        torch.testing.assert_close(norm, torch.full_like(norm, expected))
    assert all(not layer.bias.any() for layer in net.children())


def test_fcnet_same_torch_seed_gives_the_same_weights():
    made = []
    for _ in range(2):
        torch.manual_seed(3)
        made.append(fcnet().state_dict())
    assert all(torch.equal(made[0][key], made[1][key]) for key in made[0])


def test_fcnet_values_have_one_number_per_row_and_gradients():
    net = fcnet()
    outputs, state = net({"obs": torch.randn(5, 3)})
    values = net.value_function()
    assert outputs.shape == (5, 2)
    assert values.shape == (5,)
    assert state == []
    (outputs.sum() + values.sum()).backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


def test_fcnet_separate_value_network_sends_no_gradient_to_the_policy():
    net = fcnet(vf_share_layers=False)
    net({"obs": torch.randn(5, 3)})
    net.value_function().sum().backward()
    assert net.hidden_0.weight.grad is None
    assert net.value_hidden_0.weight.grad is not None


def test_fcnet_value_before_forward_is_refused():
    with pytest.raises(ValueError, match="call the model first"):
        fcnet().value_function()


def test_fcnet_without_num_outputs_tells_its_width():
    assert FullyConnectedNetwork(OBS, ACTIONS, None, {"fcnet_hiddens": [8, 4]}, "net").num_outputs == 4
    assert FullyConnectedNetwork(OBS, ACTIONS, None, {"fcnet_hiddens": []}, "net").num_outputs == 3


def test_fcnet_free_log_std_does_not_depend_on_the_state():
    net = fcnet(free_log_std=True)
    with torch.no_grad():
        net.free_log_std.log_std.fill_(-1.5)
    outputs, _ = net({"obs": torch.randn(5, 3)})
    assert outputs[:, 1].tolist() == [-1.5] * 5


def test_fcnet_is_usable_inside_a_user_s_model():
    class Outer(TorchModelV2, nn.Module):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
            nn.Module.__init__(self)
            self.inner = FullyConnectedNetwork(obs_space, action_space, num_outputs, model_config, name)

        def forward(self, input_dict, state, seq_lens):
            input_dict["obs"] = input_dict["obs"].float()
            return self.inner(input_dict, state, seq_lens)

        def value_function(self):
            return torch.reshape(self.inner.value_function(), [-1])

    outer = Outer(OBS, ACTIONS, 2, {"fcnet_hiddens": [4]}, "outer")
    assert outer({"obs": torch.randn(5, 3)})[0].shape == (5, 2)
    assert outer.value_function().shape == (5,)


def test_model_after_forward_can_be_copied_and_pickled():
    net = fcnet()
    net({"obs": torch.randn(5, 3)})
    net.tower_stats["loss"] = net.value_function().sum()
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(twin.hidden_0.weight, net.hidden_0.weight)
        assert twin.hidden_0.weight is not net.hidden_0.weight
        assert twin.last_output().grad_fn is None
        assert twin.tower_stats == {}


def test_variables_as_list_and_dict():
    net = fcnet()
    net.value.weight.requires_grad_(False)
    assert len(net.variables()) == 8
    assert set(net.variables(as_dict=True)) == set(net.state_dict())
    assert len(net.trainable_variables()) == 7
    assert "value.weight" not in net.trainable_variables(as_dict=True)


# --- images -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(42, 42), (84, 84)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_visionnet_default_filters_run(size, dtype):
    space = spaces.Box(0, 255, (*size, 3), dtype)
    net = VisionNetwork(space, ACTIONS, 2, {}, "net")
    outputs, _ = net({"obs": torch.as_tensor(np.stack([space.sample() for _ in range(2)]))})
    assert outputs.shape == (2, 2)
    assert net.value_function().shape == (2,)


@pytest.mark.parametrize("size", sorted(DEFAULT_FILTERS))
def test_default_filters_leave_one_pixel(size):
    with torch.device("meta"):
        assert ConvStack((*size, 3), DEFAULT_FILTERS[size], "relu").out_size == 256


SMALL = spaces.Box(0, 1, (8, 8, 2), np.float32)


def test_visionnet_convolution_sees_channels_last_images():
    net = VisionNetwork(SMALL, ACTIONS, None, {"conv_filters": [[4, 8, 1]], "conv_activation": "linear"}, "net")
    images = torch.rand(3, 8, 8, 2)
    weight, bias = net.convs.convs[0]._model[0].weight, net.convs.convs[0]._model[0].bias
    expected = torch.einsum("bhwc,ochw->bo", images, weight) + bias
    torch.testing.assert_close(net({"obs": images})[0], expected)


def test_visionnet_without_outputs_of_its_own_gives_all_features():
    """A memory has them before it: 8 channels of 3x3; values alone have convolutions of their own."""
    filters = {"conv_filters": [[4, 3, 2], [8, 2, 1]], "vf_share_layers": False}
    net = VisionNetwork(SMALL, ACTIONS, None, filters, "net")
    assert net.num_outputs == 72
    assert tuple(net({"obs": torch.rand(3, 8, 8, 2)})[0].shape) == (3, 72)
    assert tuple(net.value_function().shape) == (3,)


def test_visionnet_filters_that_do_not_reduce_are_explained_with_sizes():
    with pytest.raises(ConfigError, match=r"sizes 8x8 -> 4x4 -> 3x3; the last layer must leave 1x1.*kernel \[4, 4\]"):
        VisionNetwork(SMALL, ACTIONS, 2, {"conv_filters": [[4, 3, 2], [8, 2, 1]]}, "net")
    with pytest.raises(ConfigError, match="sizes 8x8 -> -1x-1"):
        VisionNetwork(SMALL, ACTIONS, 2, {"conv_filters": [[4, 10, 1]]}, "net")


def test_visionnet_filters_that_do_not_reduce_serve_before_dense_layers():
    config = {"conv_filters": [[4, 3, 2], [8, 2, 1]], "post_fcnet_hiddens": [16]}
    net = VisionNetwork(SMALL, ACTIONS, 2, config, "net")
    assert net.convs.out_size == 8 * 9
    assert net({"obs": torch.rand(3, 8, 8, 2)})[0].shape == (3, 2)


def test_visionnet_unknown_size_without_filters_is_explained():
    with pytest.raises(ConfigError, match=r"images of 8x8 \(there are for 42x42, 84x84, .*\). Set model.conv_filters"):
        VisionNetwork(SMALL, ACTIONS, 2, {}, "net")


@pytest.mark.parametrize("hiddens", [[], [16]])
@pytest.mark.parametrize("share", [True, False])
def test_visionnet_no_final_linear_and_separate_values(hiddens, share):
    config = {
        "conv_filters": [[4, 8, 1]],
        "post_fcnet_hiddens": hiddens,
        "no_final_linear": True,
        "vf_share_layers": share,
    }
    net = VisionNetwork(SMALL, ACTIONS, 6, config, "net")
    outputs, _ = net({"obs": torch.rand(3, 8, 8, 2)})
    assert outputs.shape == (3, 6)
    assert outputs.min() >= 0  # ReLU
    net.value_function().sum().backward()
    policy = net.convs.convs[0]._model[0].weight
    assert (policy.grad is not None) == share


def test_visionnet_value_before_forward_or_without_head_is_refused():
    config = {"conv_filters": [[4, 8, 1]]}
    with pytest.raises(ValueError, match="call the model first"):
        VisionNetwork(SMALL, ACTIONS, 2, config, "net").value_function()

    class NoValues(VisionNetwork):
        uses_value_function = False

    with pytest.raises(ValueError, match="without a value head"):
        NoValues(SMALL, ACTIONS, 2, config, "net").value_function()


# --- nested observations ----------------------------------------------------------------------------------------

NESTED = spaces.Dict(
    image=SMALL,
    inner=spaces.Tuple([spaces.Discrete(3, start=1), spaces.MultiDiscrete([2, 2])]),
    vector=spaces.Box(-1, 1, (2, 2), np.float32),
)
CONV = {"conv_filters": [[5, 8, 1]]}


def test_complex_net_same_features_with_and_without_preprocessing():
    preprocessor = get_preprocessor(NESTED)(NESTED)
    torch.manual_seed(0)
    net = ComplexInputNetwork(preprocessor.observation_space, ACTIONS, None, CONV, "net")
    torch.manual_seed(0)
    raw = ComplexInputNetwork(NESTED, ACTIONS, None, {**CONV, "_disable_preprocessor_api": True}, "net")
    NESTED.seed(0)
    samples = [NESTED.sample() for _ in range(4)]
    flat = torch.as_tensor(np.stack([preprocessor.transform(sample) for sample in samples]))
    nested = {
        "image": torch.as_tensor(np.stack([s["image"] for s in samples])),
        "inner": tuple(torch.as_tensor(np.stack([s["inner"][i] for s in samples])) for i in range(2)),
        "vector": torch.as_tensor(np.stack([s["vector"] for s in samples])),
    }
    outputs, _ = net({"obs": flat})
    assert net.num_outputs == 5 + 3 + 4 + 4
    torch.testing.assert_close(outputs, raw({"obs": nested})[0])


def test_complex_net_takes_images_of_rare_sizes_below_the_top_as_vectors():
    rare, known = (spaces.Box(0, 1, (side, side, 1), np.float32) for side in (10, 42))
    net = ComplexInputNetwork(spaces.Dict(inner=spaces.Dict(a=rare, b=known)), ACTIONS, None, {}, "net")
    assert net.num_outputs == 100 + 256
    with pytest.raises(ConfigError, match="No default convolutions for images of 10x10"):
        ComplexInputNetwork(spaces.Dict(a=rare), ACTIONS, None, {}, "net")


@pytest.mark.parametrize("config", [{}, {"post_fcnet_hiddens": [7]}, {"no_final_linear": True}])
def test_complex_net_outputs_and_values_have_their_shapes(config):
    space = get_preprocessor(NESTED)(NESTED).observation_space
    net = ComplexInputNetwork(space, ACTIONS, 2, {**CONV, **config}, "net")
    with pytest.raises(ValueError, match="call the model first"):
        net.value_function()
    outputs, _ = net({"obs": torch.rand(3, *space.shape)})
    assert outputs.shape == (3, 2)
    assert net.value_function().shape == (3,)


def test_complex_net_plain_space_is_refused():
    with pytest.raises(UnsupportedSpaceException, match="wants a Dict or Tuple"):
        ComplexInputNetwork(OBS, ACTIONS, 2, {}, "net")


# --- recurrent --------------------------------------------------------------------------------------------------


class Counting(RecurrentNetwork, nn.Module):
    """Adds up its first input over time."""

    def __init__(self, *args, **kwargs):
        nn.Module.__init__(self)
        super().__init__(*args, **kwargs)

    def get_initial_state(self):
        return [torch.zeros(1)]

    def forward_rnn(self, inputs, state, seq_lens):
        self.shape = tuple(inputs.shape)
        total = state[0].unsqueeze(1) + inputs[:, :, :1].cumsum(dim=1)
        return total.expand(-1, -1, 2), [total[:, -1]]


def test_recurrent_network_sequences_are_seen_one_by_one():
    net = Counting(OBS, ACTIONS, 2, {}, "net")
    obs = torch.arange(12.0).reshape(4, 3)
    outputs, state = net({"obs": obs}, [torch.tensor([[0.0], [100.0]])], torch.tensor([2, 2]))
    assert net.shape == (2, 2, 3)
    assert outputs[:, 0].tolist() == [0, 3, 106, 115]
    assert state[0].tolist() == [[3], [115]]


def test_recurrent_network_without_lengths_is_refused():
    with pytest.raises(ValueError, match="needs seq_lens"):
        Counting(OBS, ACTIONS, 2, {}, "net")({"obs": torch.zeros(4, 3)}, [torch.zeros(2, 1)])


def test_recurrent_network_without_forward_rnn_is_explained():
    class Empty(RecurrentNetwork, nn.Module):
        def __init__(self, *args):
            nn.Module.__init__(self)
            super().__init__(*args)

    with pytest.raises(NotImplementedError, match=r"Empty must define forward_rnn"):
        Empty(OBS, ACTIONS, 2, {}, "net")({"obs": torch.zeros(4, 3)}, [], torch.tensor([4]))


def test_recurrent_network_time_major_keeps_the_order_of_rows():
    class TimeMajor(Counting):
        def forward_rnn(self, inputs, state, seq_lens):
            self.shape = tuple(inputs.shape)
            return inputs[:, :, :2], state

    net = TimeMajor(OBS, ACTIONS, 2, {"_time_major": True}, "net")
    obs = torch.arange(18.0).reshape(6, 3)
    outputs, _ = net({"obs": obs}, [torch.zeros(2, 1)], torch.tensor([3, 2]))
    assert net.shape == (3, 2, 3)
    assert torch.equal(outputs, obs[:, :2])
