import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rlframe.models import MODEL_DEFAULTS, ModelCatalog
from rlframe.models import catalog as catalog_module
from rlframe.models.action_dist import ActionDistribution
from rlframe.models.actor import ChainActor
from rlframe.models.catalog import default_network
from rlframe.models.custom import accepted_options
from rlframe.models.distributions import Categorical
from rlframe.models.preprocessors import NoPreprocessor, get_preprocessor
from rlframe.models.torch.fcnet import FullyConnectedNetwork
from rlframe.models.torch.torch_action_dist import TorchCategorical, TorchDeterministic, TorchDiagGaussian
from rlframe.models.torch.torch_modelv2 import TorchModelV2
from rlframe.utils.errors import ConfigError, UnsupportedSpaceException
from tests.helpers.frameworks import FRAMEWORKS

OBS = spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = spaces.Discrete(2)
BOX = spaces.Box(-1, 1, (2,), np.float32)


@pytest.fixture(autouse=True)
def empty_registry(monkeypatch):
    monkeypatch.setattr(catalog_module, "_REGISTRY", {"model": {}, "action_dist": {}, "preprocessor": {}})


class Plain(TorchModelV2, nn.Module):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.got = {}
        self.layer = nn.Linear(3, num_outputs)

    def forward(self, input_dict, state, seq_lens):
        return self.layer(input_dict["obs"]), state


class Named(Plain):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name, width=1, *, depth=1):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.got = {"width": width, "depth": depth}


class Greedy(Plain):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name, **options):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.got = options


class Forwarding(Named):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)


class ForwardingToBase(TorchModelV2, nn.Module):
    def __init__(self, *args, **kwargs):
        TorchModelV2.__init__(self, *args, **kwargs)
        nn.Module.__init__(self)
        self.got = kwargs


def build(model_class, options=None, **kwargs):
    config = {"custom_model": model_class, "custom_model_config": options or {}}
    return ModelCatalog.get_model_v2(OBS, ACTIONS, 2, config, "torch", **kwargs)


OPTIONS = {"width": 5, "depth": 6, "other": 7}


@pytest.mark.parametrize(
    ("model_class", "expected"),
    [
        (Plain, {}),
        (Named, {"width": 5, "depth": 6}),
        (Greedy, OPTIONS),
        (Forwarding, {"width": 5, "depth": 6}),
        (ForwardingToBase, OPTIONS),
    ],
)
def test_custom_model_gets_the_options_its_constructor_declares(model_class, expected):
    model = build(model_class, OPTIONS)
    assert model.got == expected
    assert model.model_config["custom_model_config"] == OPTIONS
    assert model.model_config["custom_options"] == OPTIONS


def test_custom_model_old_name_of_options_still_works():
    config = {"custom_model": Named, "custom_options": {"width": 9}}
    model = ModelCatalog.get_model_v2(OBS, ACTIONS, 2, config, "torch")
    assert model.got == {"width": 9, "depth": 1}
    assert model.model_config["custom_model_config"] == {"width": 9}


def test_custom_model_type_error_inside_the_constructor_comes_through():
    class Broken(Plain):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name, width=1):
            super().__init__(obs_space, action_space, num_outputs, model_config, name)
            nn.Linear(3, 2, wdth=width)

    with pytest.raises(TypeError, match="unexpected keyword argument 'wdth'"):
        build(Broken, {"width": 3})


def test_custom_model_reserved_option_name_is_refused():
    with pytest.raises(ConfigError, match=r"reserved key\(s\) \['name'\]"):
        build(Named, {"name": "x"})


def test_custom_model_options_reach_it_behind_an_interface():
    class Interface(TorchModelV2):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name, *, heads):
            super().__init__(obs_space, action_space, num_outputs, model_config, name)
            self.heads = heads

    model = build(Named, OPTIONS, model_interface=Interface, heads=3)
    assert (model.heads, model.got) == (3, {"width": 5, "depth": 6})
    assert isinstance(model, Interface)
    assert isinstance(model, Named)
    assert type(model).__name__ == "Named_as_Interface"


def test_model_interface_that_the_model_has_already_changes_nothing():
    assert type(build(Named, {"width": 5}, model_interface=Plain)) is Named
    assert build(Named, {"width": 5}, model_interface=Plain).got["width"] == 5


def test_model_interface_without_values_builds_no_value_head():
    class QInterface(TorchModelV2):
        uses_value_function = False

    model = ModelCatalog.get_model_v2(OBS, ACTIONS, 2, {}, "torch", model_interface=QInterface)
    assert isinstance(model, FullyConnectedNetwork)
    assert not [name for name, _ in model.named_parameters() if "value" in name]
    with pytest.raises(ValueError, match="without a value head"):
        model.value_function()


def test_custom_model_by_registered_name_and_by_path():
    ModelCatalog.register_custom_model("mine", Plain)
    assert type(build("mine")) is Plain
    by_path = build("rlframe.models.torch.fcnet.FullyConnectedNetwork")
    assert type(by_path) is FullyConnectedNetwork


def test_custom_model_made_by_a_function():
    def make(obs_space, action_space, num_outputs, model_config, name, width=0):
        model = Plain(obs_space, action_space, num_outputs, model_config, name)
        model.got = {"width": width}
        return model

    ModelCatalog.register_custom_model("made", make)
    assert build("made", {"width": 4, "depth": 1}).got == {"width": 4}


def test_custom_model_unknown_name_is_explained():
    ModelCatalog.register_custom_model("mine", Plain)
    with pytest.raises(ConfigError, match=r"custom_model='mien' is not registered; known are \['mine'\]"):
        build("mien")
    with pytest.raises(ConfigError, match="importing it failed"):
        build("rlframe.models.nothing.Here")


def test_custom_model_that_is_none_is_refused():
    class NoModule(TorchModelV2):
        pass

    with pytest.raises(ValueError, match=r"NoModule must also derive from torch.nn.Module"):
        build(NoModule)
    with pytest.raises(ConfigError, match="must derive from TorchModelV2"):
        build(lambda *args: object())


def test_custom_model_without_module_init_is_explained():
    class Forgot(TorchModelV2, nn.Module):
        def __init__(self, *args):
            TorchModelV2.__init__(self, *args)

    with pytest.raises(ValueError, match=r"must call nn.Module.__init__\(self\)"):
        build(Forgot)


def test_default_model_unknown_keyword_is_refused():
    with pytest.raises(TypeError, match=r"unknown keyword argument\(s\) \['widht'\]"):
        ModelCatalog.get_model_v2(OBS, ACTIONS, 2, {}, "torch", widht=3)


def test_default_model_of_the_algorithm_yields_to_the_user_s():
    assert type(ModelCatalog.get_model_v2(OBS, ACTIONS, 2, {}, "torch", default_model=Plain)) is Plain
    assert type(build(Named, default_model=Plain)) is Named


@pytest.mark.parametrize("key", ["use_lstm", "use_attention"])
def test_get_model_v2_puts_a_memory_behind_the_model(key):
    model = ModelCatalog.get_model_v2(OBS, ACTIONS, 2, {key: True, "fcnet_hiddens": [7]}, "torch")
    assert model.inner.num_outputs == 7
    assert model.num_outputs == 2
    assert model.get_initial_state()
    assert ModelCatalog.actor_spec(OBS, 2, {key: True}) is None


def test_model_in_front_of_a_memory_need_not_be_a_module_itself():
    class Doubled(TorchModelV2):  # as in RLlib's example: LSTMs were mixed in
        def __init__(self, obs_space, action_space, num_outputs, model_config, name, factor=1):
            super().__init__(obs_space, action_space, num_outputs, model_config, name)
            self.num_outputs, self.factor = 3, factor

        def forward(self, input_dict, state, seq_lens):
            return input_dict["obs_flat"] * self.factor, []

    config = {"custom_model": Doubled, "custom_model_config": {"factor": 2}, "use_lstm": True, "max_seq_len": 4}
    model = ModelCatalog.get_model_v2(OBS, ACTIONS, 2, config, "torch")
    assert isinstance(model.inner, nn.Module)
    assert model.inner({"obs": torch.ones(1, 3)})[0].tolist() == [[2, 2, 2]]


@pytest.mark.parametrize("key", ["use_lstm", "use_attention"])
def test_model_that_does_not_say_how_wide_it_is_has_the_observations_width_before_a_memory(key):
    class Silent(TorchModelV2, nn.Module):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            nn.Module.__init__(self)
            super().__init__(obs_space, action_space, num_outputs, model_config, name)
            self.layer = nn.Linear(3, 3 if num_outputs is None else num_outputs)

        def forward(self, input_dict, state, seq_lens):
            return self.layer(input_dict["obs_flat"]), state

    model = ModelCatalog.get_model_v2(OBS, ACTIONS, 2, {"custom_model": Silent, key: True}, "torch")
    assert (model.inner.num_outputs, model.num_outputs) == (3, 2)


@pytest.mark.parametrize("key", ["use_lstm", "use_attention"])
def test_get_model_v2_puts_heads_of_an_algorithm_on_a_memory(key):
    class Heads(TorchModelV2):
        uses_value_function = False

        def __init__(self, obs_space, action_space, num_outputs, model_config, name, factor=1):
            super().__init__(obs_space, action_space, num_outputs, model_config, name)
            self.factor = factor

        def scaled(self, features):
            return features * self.factor

    model = ModelCatalog.get_model_v2(OBS, ACTIONS, 5, {key: True}, "torch", model_interface=Heads, factor=3)
    columns = {"obs": torch.zeros(4, 3), "seq_lens": torch.tensor([2, 2])}
    states = [torch.as_tensor(state)[None].repeat_interleave(2, 0) for state in model.get_initial_state()]
    features, after = model(columns, states)
    assert features.shape == (4, 5)
    assert [state.shape for state in after] == [state.shape for state in states]
    torch.testing.assert_close(model.scaled(features), 3 * features)
    assert not hasattr(model.heads, "value")


@pytest.mark.parametrize("key", ["use_lstm", "use_attention"])
def test_model_in_front_of_a_memory_that_is_not_as_wide_as_it_says_is_refused(key):
    class Narrow(TorchModelV2, nn.Module):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            nn.Module.__init__(self)
            super().__init__(obs_space, action_space, num_outputs, model_config, name)
            self.layer = nn.Linear(3, 2)

        def forward(self, input_dict, state, seq_lens):
            return self.layer(input_dict["obs_flat"]), state

    model = ModelCatalog.get_model_v2(OBS, ACTIONS, 2, {"custom_model": Narrow, key: True}, "torch")
    states = [torch.as_tensor(state)[None] for state in model.get_initial_state()]
    with pytest.raises(ValueError, match=r"gave rows of 2 numbers and has num_outputs 3: set self\.num_outputs"):
        model({"obs": torch.zeros(1, 3), "seq_lens": torch.tensor([1])}, states)


def test_get_model_v2_with_both_memories_is_refused():
    with pytest.raises(ValueError, match=r"use_lstm and model\.use_attention are both on"):
        ModelCatalog.get_model_v2(OBS, ACTIONS, 2, {"use_lstm": True, "use_attention": True})


def test_get_model_v2_other_framework_is_refused():
    with pytest.raises(ConfigError, match="framework 'jax' are not available; use framework='torch' or framework='tf'"):
        ModelCatalog.get_model_v2(OBS, ACTIONS, 2, {}, "jax")


def preprocessed(space):
    return get_preprocessor(space)(space).observation_space


IMAGE = spaces.Box(0, 255, (42, 42, 3), np.uint8)


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (OBS, "fcnet"),
        (spaces.Box(-1, 1, (3, 4)), "fcnet"),
        (spaces.Box(-1, 1, ()), "fcnet"),
        (preprocessed(spaces.Discrete(3)), "fcnet"),
        (preprocessed(spaces.Dict(a=spaces.Discrete(3), b=OBS)), "fcnet"),
        (preprocessed(spaces.Dict(a=spaces.Tuple([IMAGE]), b=OBS)), "complex_input_net"),
        (spaces.Dict(a=spaces.Discrete(3), b=OBS), "complex_input_net"),
        (IMAGE, "visionnet"),
    ],
)
def test_default_network_by_observation_space(space, expected):
    assert default_network(space) == expected


@pytest.mark.parametrize(
    ("space", "message"),
    [(spaces.Box(-1, 1, (2, 2, 2, 2)), "at most 3 dimensions"), (spaces.Discrete(3), "get_preprocessor")],
)
def test_default_network_for_no_space_is_explained(space, message):
    with pytest.raises(UnsupportedSpaceException, match=message):
        default_network(space)


def test_default_model_dict_with_discrete_leaf_runs():
    space = preprocessed(spaces.Dict(a=spaces.Discrete(3), b=OBS))
    model = ModelCatalog.get_model_v2(space, ACTIONS, 2, {}, "torch")
    assert model({"obs": torch.zeros(4, 6)})[0].shape == (4, 2)


def test_actor_spec_exists_for_the_default_vector_network_only():
    assert ModelCatalog.actor_spec(OBS, 2, {"custom_model": Plain}) is None
    assert ModelCatalog.actor_spec(IMAGE, 2, {}) is None
    assert ModelCatalog.actor_spec(OBS, 2, {}, values=False)["values"] is None


def test_actor_of_a_subclass_that_computes_otherwise_is_none():
    class Doubled(FullyConnectedNetwork):
        def forward(self, input_dict, state, seq_lens):
            outputs, state = super().forward(input_dict, state, seq_lens)
            return outputs * 2, state

    assert build(Doubled).actor_spec() is None
    assert build(Plain).actor_spec() is None


@pytest.mark.parametrize(
    ("space", "dist_type", "framework", "expected", "dim"),
    [
        (ACTIONS, None, "torch", TorchCategorical, 2),
        (ACTIONS, None, "numpy", Categorical, 2),
        (OBS, None, "torch", TorchDiagGaussian, 6),
        (OBS, "deterministic", "torch", TorchDeterministic, 3),
        (OBS, TorchDeterministic, "torch", TorchDeterministic, 3),
    ],
)
def test_get_action_dist_class_and_width(space, dist_type, framework, expected, dim):
    assert ModelCatalog.get_action_dist(space, {}, dist_type, framework) == (expected, dim)


def test_get_action_dist_custom_goes_first():
    class Mine(ActionDistribution):
        @staticmethod
        def required_model_output_shape(action_space, model_config):
            return (action_space.n, 2)

    ModelCatalog.register_custom_action_dist("mine", Mine)
    assert ModelCatalog.get_action_dist(ACTIONS, {"custom_action_dist": "mine"}) == (Mine, (2, 2))
    with pytest.raises(ConfigError, match="custom_action_dist='my' is not registered"):
        ModelCatalog.get_action_dist(ACTIONS, {"custom_action_dist": "my"})


@pytest.mark.parametrize(
    ("space", "torch_dtype", "numpy_dtype", "shape"),
    [
        (ACTIONS, torch.int64, np.int64, (None,)),
        (OBS, torch.float32, np.float32, (None, 3)),
        (spaces.Box(0, 3, (2, 2), np.uint16), torch.int64, np.uint16, (None, 2, 2)),
        (spaces.Tuple([ACTIONS, OBS]), torch.float32, np.float32, (None, 4)),
        (spaces.Tuple([ACTIONS, spaces.MultiDiscrete([2, 2])]), torch.int64, np.int64, (None, 3)),
    ],
)
def test_get_action_shape(space, torch_dtype, numpy_dtype, shape):
    assert ModelCatalog.get_action_shape(space) == (torch_dtype, shape)
    assert ModelCatalog.get_action_shape(space, framework="numpy") == (np.dtype(numpy_dtype), shape)


def test_get_preprocessor_default_and_custom():
    class Halved(NoPreprocessor):
        def transform(self, observation):
            return super().transform(observation) / 2

    ModelCatalog.register_custom_preprocessor("half", Halved)
    assert type(ModelCatalog.get_preprocessor_for_space(OBS)) is NoPreprocessor
    assert type(ModelCatalog.get_preprocessor_for_space(OBS, {"custom_preprocessor": "half"})) is Halved


def test_get_preprocessor_as_wrapper_keeps_the_contract_of_an_old_environment():
    class Old(gym.Env):
        observation_space, action_space = spaces.Discrete(3), spaces.Discrete(2)

        def reset(self):
            return 1

        def step(self, action):
            return 2, 1.0, True, {}

    env = ModelCatalog.get_preprocessor_as_wrapper(Old())
    np.testing.assert_array_equal(env.reset(), [0, 1, 0])
    obs, *rest = env.step(0)
    np.testing.assert_array_equal(obs, [0, 0, 1])
    assert rest == [1.0, True, {}]


def test_get_preprocessor_as_wrapper_transforms_observations():
    class Env(gym.Env):
        observation_space = spaces.Discrete(3)
        action_space = ACTIONS

        def reset(self, *, seed=None, options=None):
            return 1, {}

    env = ModelCatalog.get_preprocessor_as_wrapper(Env())
    assert env.reset()[0].tolist() == [0, 1, 0]
    assert env.observation_space.shape == (3,)
    assert ModelCatalog.get_preprocessor(Env()).shape == (3,)


def test_registered_snapshot_installs_elsewhere(monkeypatch):
    ModelCatalog.register_custom_model("mine", Plain)
    snapshot = ModelCatalog.registered()
    ModelCatalog.register_custom_model("later", Plain)
    assert "later" not in snapshot["model"]
    monkeypatch.setattr(catalog_module, "_REGISTRY", {"model": {}, "action_dist": {}, "preprocessor": {}})
    ModelCatalog.install(snapshot)
    assert ModelCatalog.registered()["model"] == {"mine": Plain}


@pytest.mark.parametrize(("name", "value"), [("", Plain), (3, Plain), ("mine", 3)])
def test_register_nonsense_is_refused(name, value):
    with pytest.raises(ConfigError, match=r"registered under a name|must be a class"):
        ModelCatalog.register_custom_model(name, value)


def test_accepted_options_of_a_class_without_constructor_are_those_of_its_parent():
    class Child(Named):
        pass

    assert accepted_options(Child, OPTIONS) == {"width": 5, "depth": 6}


def test_model_defaults_have_the_documented_values():
    assert MODEL_DEFAULTS["fcnet_hiddens"] == [256, 256]
    assert MODEL_DEFAULTS["fcnet_activation"] == "tanh"
    assert MODEL_DEFAULTS["vf_share_layers"] is True
    assert MODEL_DEFAULTS["custom_model_config"] == {}


def test_get_model_v2_leaves_the_config_and_the_defaults_alone():
    config = {"fcnet_hiddens": [4]}
    model = ModelCatalog.get_model_v2(OBS, ACTIONS, 2, config, "torch")
    model.model_config["fcnet_hiddens"].append(3)
    model.model_config["custom_model_config"]["x"] = 1
    assert MODEL_DEFAULTS["custom_model_config"] == {}
    assert list(config) == ["fcnet_hiddens"]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_default_convolutions_are_said_in_the_config_they_were_missing_in(framework):
    config = {**MODEL_DEFAULTS, "conv_activation": "relu"}
    images, small = (spaces.Box(0, 255, (size, size, 4), np.uint8) for size in (84, 42))
    model = ModelCatalog.get_model_v2(images, ACTIONS, 2, config, framework)
    assert config["conv_filters"] == model.model_config["conv_filters"]
    assert config["conv_filters"][0] == [16, [8, 8], 4]
    remembers = {**MODEL_DEFAULTS, "use_lstm": True, "lstm_cell_size": 4}
    ModelCatalog.get_model_v2(images, ACTIONS, 2, remembers, framework)
    assert remembers["conv_filters"] == config["conv_filters"]
    # A section that is handed on to a model of smaller images gets the defaults of these.
    ModelCatalog.get_model_v2(small, ACTIONS, 2, config, framework)
    assert config["conv_filters"][0] == [16, [4, 4], 2]
    ModelCatalog.get_model_v2(images, ACTIONS, 2, MODEL_DEFAULTS, framework)
    assert MODEL_DEFAULTS["conv_filters"] is None
    given = {**MODEL_DEFAULTS, "conv_filters": [[4, 84, 1]]}
    ModelCatalog.get_model_v2(images, ACTIONS, 2, given, framework)
    assert given["conv_filters"] == [[4, 84, 1]]


def test_acting_loads_no_framework():
    code = (
        "import sys\n"
        "from gymnasium import spaces\n"
        "from rlframe.models import ModelCatalog\n"
        "from rlframe.models.actor import ChainActor\n"
        "space = spaces.Box(-1, 1, (3,))\n"
        "assert ModelCatalog.actor_spec(space, 2, {})\n"
        "ModelCatalog.get_action_dist(spaces.Discrete(2), {}, framework='numpy')\n"
        "assert not {'torch', 'tensorflow', 'ray'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert ChainActor is not None


def test_models_package_unknown_name_is_an_attribute_error():
    import rlframe.models

    assert "ModelCatalog" in dir(rlframe.models)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = rlframe.models.Nothing


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(
    ("space", "config", "free"),
    [
        (BOX, {"free_log_std": None}, True),
        (BOX, {"free_log_std": None, "use_lstm": True}, True),
        (BOX, {"free_log_std": None, "use_attention": True}, True),
        (BOX, {}, False),
        (BOX, {"free_log_std": None, "custom_action_dist": "mine"}, False),
        (ACTIONS, {"free_log_std": None}, False),
        (spaces.Tuple([BOX, BOX]), {"free_log_std": None}, False),
    ],
)
def test_log_std_is_free_where_actions_are_gaussian(framework, space, config, free):
    ModelCatalog.register_custom_action_dist("mine", TorchDiagGaussian)
    model = ModelCatalog.get_model_v2(OBS, space, 4, config, framework)
    names = [name for name, _ in model.named_parameters()] if framework == "torch" else list(model.variables(True))
    assert any("free_log_std" in name for name in names) == free


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_free_log_std_is_refused_where_the_network_has_none(framework):
    with pytest.raises(ConfigError, match=r"free_log_std=True.*wanted vectors as observations, a memory"):
        ModelCatalog.get_model_v2(IMAGE, BOX, 4, {"free_log_std": True}, framework)
    ModelCatalog.get_model_v2(IMAGE, BOX, 4, {"free_log_std": None}, framework)
    ModelCatalog.get_model_v2(IMAGE, BOX, 4, {"free_log_std": True, "use_lstm": True}, framework)


def test_a_custom_model_reads_free_log_std_as_it_is():
    assert ModelCatalog.get_model_v2(OBS, BOX, 4, {"custom_model": Plain, "free_log_std": None}).num_outputs == 4
