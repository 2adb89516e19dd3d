import copy
import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rlframe.data.view_requirements import ViewRequirement
from rlframe.fast.dense_torch import as_rows
from rlframe.models.catalog import ModelCatalog
from rlframe.models.preprocessors import get_preprocessor
from rlframe.models.torch.action_mask import ActionMaskModel
from rlframe.models.torch.check_model import check_model
from rlframe.models.torch.misc import (
    AppendBiasLayer,
    SlimConv2d,
    SlimFC,
    activation_function,
    activation_module,
    normc_initializer,
    same_padding,
    valid_size,
)
from rlframe.models.torch.noisy import NoisyLayer
from rlframe.models.torch.torch_action_dist import (
    TorchCategorical,
    TorchDeterministic,
    TorchDiagGaussian,
    TorchMultiActionDistribution,
    TorchMultiCategorical,
    TorchSquashedGaussian,
)
from rlframe.models.torch.torch_modelv2 import TorchModelV2
from rlframe.utils.errors import ConfigError

OBS = spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = spaces.Discrete(2)

# --- misc -------------------------------------------------------------------------------------------------------


def test_normc_initializer_rows_have_the_norm():
    weight = torch.empty(5, 7)
    normc_initializer(0.3)(weight)
    torch.testing.assert_close(weight.norm(dim=1), torch.full((5,), 0.3))


def test_slim_fc_takes_names_classes_and_initialisers():
    layer = SlimFC(3, 2, initializer=normc_initializer(1.0), activation_fn=nn.ReLU, bias_init=-10.0)
    assert not layer(torch.rand(4, 3)).any()
    assert SlimFC(3, 2, activation_fn="tanh")(torch.rand(4, 3)).abs().max() < 1
    assert len(list(SlimFC(3, 2, use_bias=False).parameters())) == 1


def test_slim_conv_default_is_relu_with_padding():
    conv = SlimConv2d(1, 4, 3, 2, same_padding(7, 3, 2)[0])
    out = conv(torch.rand(2, 1, 7, 7))
    assert out.shape == (2, 4, 4, 4)
    assert out.min() >= 0


def test_append_bias_layer_appends():
    assert AppendBiasLayer(2)(torch.ones(3, 1)).tolist() == [[1, 0, 0]] * 3


def test_activation_unknown_is_refused_and_linear_is_none():
    assert activation_function("linear") is None
    assert activation_module(None) is None
    with pytest.raises(ValueError, match="Unknown activation 'sin'"):
        activation_module("sin")


def test_same_padding_odd_pixel_is_right_and_bottom():
    # 5 wide, kernel 4, stride 2: 3 outputs need (3 - 1)·2 + 4 = 8 pixels, 3 more than there are
    assert same_padding((5, 84), (4, 8), (2, 4)) == ((2, 2, 1, 2), (3, 21))
    assert valid_size(11, 11, 1) == (1, 1)


# --- noisy layer ------------------------------------------------------------------------------------------------


def test_noisy_layer_starts_as_in_the_paper():
    layer = NoisyLayer(16, 4, sigma0=0.5)
    assert layer.weight.abs().max() <= 0.25
    torch.testing.assert_close(layer.weight_sigma, torch.full((4, 16), 0.125))
    torch.testing.assert_close(layer.bias_sigma, torch.full((4,), 0.125))


def test_noisy_layer_noise_follows_the_mode_unless_told():
    layer, x = NoisyLayer(3, 2, activation=None), torch.ones(1, 3)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))
    layer.noise = True
    assert not torch.equal(layer(x), layer(x))
    layer.train()
    layer.noise = False
    assert torch.equal(layer(x), layer(x))


def test_noisy_layer_generator_repeats_the_noise_and_stays_behind_in_copies():
    layer, x = NoisyLayer(3, 2, activation="tanh"), torch.ones(1, 3)
    results = []
    for _ in range(2):
        layer.generator = torch.Generator().manual_seed(5)
        results.append(layer(x))
    assert torch.equal(*results)
    assert copy.deepcopy(layer).generator is None


def test_noisy_layer_equals_the_noisy_matrix_written_out():
    layer, x = NoisyLayer(3, 2, activation=None), torch.rand(4, 3)
    layer.generator = torch.Generator().manual_seed(1)
    noise = torch.randn(5, generator=torch.Generator().manual_seed(1))
    f = noise.sign() * noise.abs().sqrt()
    weight = layer.weight + layer.weight_sigma * torch.outer(f[3:], f[:3])
    expected = x @ weight.T + layer.bias + layer.bias_sigma * f[3:]
    torch.testing.assert_close(layer(x), expected)


def test_noisy_layer_sigma_gets_gradients():
    layer = NoisyLayer(3, 2, activation=None)
    layer(torch.rand(4, 3)).sum().backward()
    assert layer.weight_sigma.grad.abs().sum() > 0


# --- distributions (the rest is in tests/contract) --------------------------------------------------------------


def test_torch_categorical_temperature_sharpens():
    logits = torch.tensor([[0.0, 1.0]])
    cold, plain = TorchCategorical(logits, None, 0.1), TorchCategorical(logits)
    assert cold.entropy() < plain.entropy()
    assert math.isclose(float(cold.logp(torch.tensor([1])).exp()), 1 / (1 + math.exp(-10)), rel_tol=1e-5)
    with pytest.raises(ValueError, match="temperature > 0; got 0"):
        TorchCategorical(logits, None, 0.0)


def test_torch_categorical_takes_arrays():
    dist = TorchCategorical(np.zeros((3, 2), np.float32))
    assert dist.deterministic_sample().tolist() == [0, 0, 0]
    assert dist.logp(np.array([0, 1, 0])).shape == (3,)


def test_torch_multi_categorical_takes_rllib_s_arguments():
    space = spaces.MultiDiscrete([[2, 3]])
    dist = TorchMultiCategorical(torch.zeros(4, 5), None, [2, 3], space)
    assert dist.sample().shape == (4, 1, 2)
    with pytest.raises(ValueError, match=r"\(2, 2\) do not add up to the 5 inputs"):
        TorchMultiCategorical(torch.zeros(4, 5), None, [2, 2])


def test_actions_of_several_choices_may_be_a_list_by_component():
    dist = TorchMultiCategorical(torch.arange(10.0).reshape(2, 5), None, [2, 3])
    rows = [[0, 2], [1, 0]]
    by_component = [torch.tensor([0.0, 1.0]), torch.tensor([2.0, 0.0])]
    for given in (rows, torch.tensor(rows), np.array(rows)):
        torch.testing.assert_close(dist.logp(by_component), dist.logp(given))
    # Three rows: component by component [2, 3] and row by row [3, 2] are told apart.
    dist = TorchMultiCategorical(torch.arange(15.0).reshape(3, 5) ** 2 / 20, None, [2, 3])
    rows = np.array([[0, 2], [1, 0], [1, 1]])
    torch.testing.assert_close(dist.logp(rows.T), dist.logp(torch.tensor(rows)))
    torch.testing.assert_close(dist.logp(rows), dist.logp(torch.tensor(rows)))


def test_torch_multi_action_takes_rllib_s_arguments():
    space = spaces.Dict(b=spaces.Discrete(2), a=spaces.Box(-1, 1, (1,)))
    children = {"a": TorchDeterministic, "b": TorchCategorical}
    dist = TorchMultiActionDistribution(
        torch.zeros(4, 3), None, child_distributions=children, input_lens=[1, 2], action_space=space
    )
    assert dist.sample()["b"].shape == (4,)
    for widths in (np.array([1, 2]), (width for width in (1, 2))):
        given = {"child_distributions": children, "input_lens": widths, "action_space": space}
        assert TorchMultiActionDistribution(torch.zeros(4, 3), None, **given).input_lens == [1, 2]
    with pytest.raises(ValueError, match=r"needs action_space=, or structure="):
        TorchMultiActionDistribution(torch.zeros(4, 3), child_distributions=children, input_lens=[1, 2])


def test_multi_action_of_given_children_takes_leaves_without_a_default_and_nested_widths():
    space = spaces.Dict(grid=spaces.Box(-1, 1, (2, 3)), move=spaces.Tuple([spaces.Discrete(2)]))

    class Grid(TorchDeterministic):
        def sample(self):
            return self.inputs.reshape(-1, 2, 3)

    children, widths = {"grid": Grid, "move": (TorchCategorical,)}, {"grid": 6, "move": (2,)}
    dist = TorchMultiActionDistribution(
        torch.zeros(4, 8), None, child_distributions=children, input_lens=widths, action_space=space
    )
    assert dist.input_lens == [6, 2]
    action = dist.sample()
    assert action["grid"].shape == (4, 2, 3)
    torch.testing.assert_close(dist.logp(action), torch.full((4,), -np.log(2.0).item()))


def test_torch_squashed_gaussian_gradients_flow_through_the_sample():
    inputs = torch.zeros(4, 2, requires_grad=True)
    dist = TorchSquashedGaussian(inputs)
    dist.sample().sum().backward()
    assert inputs.grad.abs().sum() > 0
    with pytest.raises(ValueError, match="needs low < high"):
        TorchSquashedGaussian(inputs, low=1.0, high=0.0)


def test_sampled_action_logp_before_sample_is_refused():
    for dist in (TorchCategorical(torch.zeros(1, 2)), TorchSquashedGaussian(torch.zeros(1, 2))):
        with pytest.raises(ValueError, match=r"call sample\(\) first"):
            dist.sampled_action_logp()


# --- action masks -----------------------------------------------------------------------------------------------


def masked(key="observations", mask_size=3, inner=OBS, **options):
    space = spaces.Dict({"action_mask": spaces.Box(0, 1, (mask_size,)), key: inner})
    preprocessor = get_preprocessor(space)(space)
    config = {"fcnet_hiddens": [4], "custom_model": ActionMaskModel, "custom_model_config": options}
    obs_space = preprocessor.observation_space
    return preprocessor, ModelCatalog.get_model_v2(obs_space, spaces.Discrete(3), 3, config, "torch")


@pytest.mark.parametrize("key", ["observations", "obs", "observation"])
def test_action_mask_model_forbidden_actions_are_never_drawn(key):
    preprocessor, model = masked(key)
    obs = preprocessor.transform({"action_mask": np.array([1, 0, 1], np.float32), key: np.ones(3, np.float32)})
    logits, _ = model({"obs": torch.as_tensor(obs).expand(500, -1)})
    assert torch.isfinite(logits).all()
    assert 1 not in TorchCategorical(logits).sample()
    assert TorchCategorical(logits).entropy().isfinite().all()
    assert model.value_function().shape == (500,)
    check_model(model, preprocessor.observation_space, 3, values=True)


def test_action_mask_model_nested_observations_reach_the_network_flat():
    inner = spaces.Dict(x=OBS, d=spaces.Discrete(4))
    preprocessor, model = masked(inner=inner)
    check_model(model, preprocessor.observation_space, 3)
    assert model.network.hidden_0.in_features == 7


def test_action_mask_model_switched_off_changes_nothing():
    preprocessor, model = masked(no_masking=True)
    obs = preprocessor.transform({"action_mask": np.zeros(3, np.float32), "observations": np.ones(3, np.float32)})
    assert model({"obs": torch.as_tensor(obs)[None]})[0].abs().max() < 1


def test_action_mask_model_wrong_space_or_size_is_explained():
    with pytest.raises(ConfigError, match="mask has 2 entries, but the action space has 3"):
        masked(mask_size=2)
    with pytest.raises(ConfigError, match=r"wants observations Dict\(action_mask="):
        masked(key="state")
    with pytest.raises(ConfigError, match=r"wants observations Dict\(action_mask="):
        ActionMaskModel(OBS, ACTIONS, 2, {}, "mask")


# --- check_model ------------------------------------------------------------------------------------------------


class Fake(TorchModelV2, nn.Module):
    """A model whose outputs, states and values are given by the test."""

    def __init__(self, outputs=None, initial=(), states=None, values=None, obs_space=OBS):
        TorchModelV2.__init__(self, obs_space, ACTIONS, 2, {}, "fake")
        nn.Module.__init__(self)
        self.layer = nn.Linear(3, 2)
        self.outputs, self.initial, self.states, self.values = outputs, list(initial), states, values

    def forward(self, input_dict, state, seq_lens):
        self.seen = input_dict
        self.was_training = self.training
        outputs = self.layer(input_dict["obs"].float()) if self.outputs is None else self.outputs
        return outputs, state if self.states is None else self.states

    def get_initial_state(self):
        return self.initial

    def value_function(self):
        return self.values


def test_check_model_good_model_passes_and_is_left_as_it_was():
    model = Fake(initial=[np.zeros(4, np.float32)], values=torch.zeros(2))
    before = torch.get_rng_state()
    check_model(model, OBS, 2, values=True)
    assert model.training
    assert not model.was_training
    assert torch.equal(torch.get_rng_state(), before)
    assert model.seen["obs"].abs().sum() == 0  # as in RLlib's first run


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Fake(outputs=torch.zeros(2, 5)), r"outputs of shape \[2, 5\] for 2 observations; wanted \[2, 2\]"),
        (Fake(outputs=torch.zeros(2, 2, dtype=torch.int64)), "float tensor .* got a Tensor of torch.int64"),
        (Fake(outputs=np.zeros((2, 2))), "float tensor .* got a ndarray"),
        (Fake(states=[torch.zeros(2, 1)]), r"returned 1 state\(s\), but get_initial_state\(\) promises 0"),
        (Fake(initial=[torch.zeros(4)], states=[torch.zeros(2, 3)]), r"state 0 of shape \[2, 3\]; .* \[2, 4\]"),
        (Fake(values=torch.zeros(2, 1)), r"one value per row, shape \[2\] here; got \[2, 1\]. Squeeze"),
        (Fake(values=3.0), "got float"),
    ],
)
def test_check_model_wrong_shapes_are_named(model, message):
    with pytest.raises(ValueError, match=message):
        check_model(model, OBS, 2, values=True)


def test_check_model_gives_the_columns_a_model_asks_for():
    model = Fake()
    model.view_requirements["prev_actions"] = ViewRequirement("actions", shift=-1, space=ACTIONS)
    model.view_requirements["prev_n_obs"] = ViewRequirement("obs", shift="-3:0", space=OBS)
    check_model(model, OBS, 2)
    assert model.seen["prev_actions"].shape == (2,)
    assert model.seen["prev_n_obs"].shape == (2, 4, 3)


def test_check_model_samples_the_original_space():
    space = spaces.Dict(a=OBS, b=spaces.Discrete(2))
    obs_space = get_preprocessor(space)(space).observation_space
    model = ModelCatalog.get_model_v2(obs_space, ACTIONS, 2, {}, "torch")
    check_model(model, obs_space, None, values=True)


def test_a_distribution_of_torch_that_a_subclass_sets_takes_the_place_of_the_class_own():
    class Limited(TorchDiagGaussian):
        def __init__(self, inputs, model):
            super().__init__(inputs, model)
            mean, log_std = self.inputs.chunk(2, dim=1)
            self.dist = torch.distributions.Normal(mean, log_std.clamp(-1.0, 1.0).exp())

    inputs = torch.tensor([[0.5, -0.5, 3.0, -4.0]])
    mine, limited = Limited(inputs, None), TorchDiagGaussian(torch.tensor([[0.5, -0.5, 1.0, -1.0]]), None)
    actions = torch.tensor([[2.0, -0.7]])
    np.testing.assert_array_equal(mine.logp(actions=actions), mine.logp(actions))  # RLlib's name of it
    for method, arguments in (("logp", (actions,)), ("entropy", ()), ("kl", (TorchDiagGaussian(inputs, None),))):
        np.testing.assert_allclose(
            getattr(mine, method)(*arguments), getattr(limited, method)(*arguments), rtol=1e-5, err_msg=method
        )


def test_choices_of_torch_that_a_subclass_sets_take_the_place_of_the_class_own():
    class Masked(TorchCategorical):
        def __init__(self, inputs, model):
            super().__init__(inputs, model)
            self.dist = torch.distributions.Categorical(logits=self.inputs + torch.tensor([0.0, -1e9, 0.0]))

    mine = Masked(torch.zeros(200, 3), None)
    assert set(mine.sample().tolist()) == {0, 2}
    np.testing.assert_allclose(mine.entropy(), np.log(2.0), rtol=1e-6)
    assert 1 not in mine.deterministic_sample()


def test_check_model_gives_a_batch_as_policies_do():
    class Asks(Fake):
        def forward(self, input_dict, state, seq_lens):
            assert not input_dict.is_training
            assert not input_dict["is_training"]
            assert input_dict.count == len(input_dict["obs"])
            return super().forward(input_dict, state, seq_lens)

    check_model(Asks(), OBS, 2)


# --- rows of dense chains ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "rows"), [((5,), (5, 1)), ((5, 3), (5, 3)), ((5, 2, 3), (5, 6)), ((0, 2, 3), (0, 6)), ((0,), (0, 1))]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.uint8])
def test_observations_of_every_shape_are_rows(shape, rows, dtype):
    obs = torch.ones(shape, dtype=dtype)
    made = as_rows(obs)
    assert made.shape == rows
    assert made.dtype == torch.float32
    assert bool((made == 1).all())
