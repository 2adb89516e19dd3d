import subprocess
import sys

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rlframe.models.catalog import ModelCatalog
from rlframe.models.preprocessors import get_preprocessor
from rlframe.models.torch.torch_modelv2 import TorchModelV2
from rlframe.utils.errors import ConfigError

tf = pytest.importorskip("tensorflow")

from rlframe.models.tf.complex_input_net import ComplexInputNetwork  # noqa: E402 - TensorFlow may be missing
from rlframe.models.tf.fcnet import FullyConnectedNetwork  # noqa: E402
from rlframe.models.tf.tf_action_dist import (  # noqa: E402
    TF_DISTRIBUTIONS,
    Categorical,
    Deterministic,
    DiagGaussian,
    TFActionDistribution,
)
from rlframe.models.tf.tf_modelv2 import TFModelV2  # noqa: E402
from rlframe.models.tf.visionnet import VisionNetwork  # noqa: E402

OBS = spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = spaces.Discrete(2)
IMAGE = spaces.Box(0, 255, (42, 42, 3), np.uint8)
PARTS = spaces.Dict(a=IMAGE, b=OBS)


class OfTorch(TorchModelV2, nn.Module):
    def __init__(self, *args):
        nn.Module.__init__(self)
        TorchModelV2.__init__(self, *args)


class OfTF(TFModelV2):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name, width=1):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.width = width


@pytest.mark.parametrize("framework", ["tf", "tf2", "tfe"])
def test_default_models_by_observation_space(framework):
    nested = get_preprocessor(PARTS)(PARTS).observation_space
    for space, expected in ((OBS, FullyConnectedNetwork), (IMAGE, VisionNetwork), (nested, ComplexInputNetwork)):
        assert type(ModelCatalog.get_model_v2(space, ACTIONS, 2, {}, framework)) is expected


@pytest.mark.parametrize(
    ("model_class", "framework", "message"),
    [
        (OfTorch, "tf2", r"'OfTorch' is a TorchModelV2, made for framework='torch', but .* framework='tf'.*TFModelV2"),
        (OfTF, "torch", r"'OfTF' is a TFModelV2, made for framework='tf', but .* framework='torch'.*TorchModelV2"),
        (lambda *args: OfTorch(*args), "tf", "'OfTorch' is a TorchModelV2"),
        (lambda *args: object(), "tf", "must derive from TFModelV2; got a object"),
    ],
)
def test_custom_model_of_the_other_framework_is_refused(model_class, framework, message):
    interface = type("Interface", (TFModelV2 if framework != "torch" else TorchModelV2,), {})
    for model_interface in (None, interface):
        with pytest.raises(ConfigError, match=message):
            ModelCatalog.get_model_v2(
                OBS, ACTIONS, 2, {"custom_model": model_class}, framework, model_interface=model_interface
            )


def test_custom_model_gets_options_behind_an_interface():
    class Interface(TFModelV2):
        uses_value_function = False

        def __init__(self, obs_space, action_space, num_outputs, model_config, name, *, heads):
            super().__init__(obs_space, action_space, num_outputs, model_config, name)
            self.heads = heads
            TFModelV2.add_dense(self, "head", 2, heads)

    config = {"custom_model": OfTF, "custom_model_config": {"width": 5}}
    model = ModelCatalog.get_model_v2(OBS, ACTIONS, 2, config, "tf", model_interface=Interface, heads=3)
    assert (model.heads, model.width) == (3, 5)
    assert list(model.variables(as_dict=True)) == ["head.weight", "head.bias"]
    default = ModelCatalog.get_model_v2(OBS, ACTIONS, None, {}, "tf", model_interface=Interface, heads=3)
    assert isinstance(default, FullyConnectedNetwork)
    assert [name for name in default.variables(as_dict=True) if "value" in name] == []


@pytest.mark.parametrize("key", ["use_lstm", "use_attention"])
def test_a_memory_stands_behind_the_model(key):
    model = ModelCatalog.get_model_v2(OBS, ACTIONS, 2, {key: True, "fcnet_hiddens": [7]}, "tf")
    assert model.inner.num_outputs == 7
    assert model.num_outputs == 2
    assert model.get_initial_state()


@pytest.mark.parametrize(
    ("space", "dist_type", "framework", "expected", "dim"),
    [
        (ACTIONS, None, "tf", Categorical, 2),
        (OBS, None, "tf2", DiagGaussian, 6),
        (OBS, "deterministic", "tfe", Deterministic, 3),
        (OBS, Deterministic, "tf", Deterministic, 3),
    ],
)
def test_get_action_dist_class_and_width(space, dist_type, framework, expected, dim):
    assert ModelCatalog.get_action_dist(space, {}, dist_type, framework) == (expected, dim)


def test_distributions_have_the_kinds_and_parameters_of_torch():
    import inspect

    from rlframe.models.torch.torch_action_dist import TORCH_DISTRIBUTIONS

    assert TF_DISTRIBUTIONS.keys() == TORCH_DISTRIBUTIONS.keys()
    for kind, ours in TF_DISTRIBUTIONS.items():
        theirs = TORCH_DISTRIBUTIONS[kind]
        assert theirs.__name__ == f"Torch{ours.__name__}"
        assert issubclass(ours, TFActionDistribution)
        for method in ("__init__", "kl", "entropy", "sample", "required_model_output_shape"):
            names = [list(inspect.signature(getattr(cls, method)).parameters) for cls in (ours, theirs)]
            assert names[0] == names[1], (kind, method)


@pytest.mark.parametrize(
    ("space", "dtype", "shape"),
    [
        (ACTIONS, tf.int64, (None,)),
        (OBS, tf.float32, (None, 3)),
        (spaces.Box(0, 3, (2, 2), np.uint16), tf.int64, (None, 2, 2)),
        (spaces.Tuple([ACTIONS, OBS]), tf.float32, (None, 4)),
    ],
)
def test_get_action_shape(space, dtype, shape):
    assert ModelCatalog.get_action_shape(space, framework="tf") == (dtype, shape)


def test_unknown_framework_is_refused_everywhere():
    for call in (
        lambda: ModelCatalog.get_model_v2(OBS, ACTIONS, 2, {}, "jax"),
        lambda: ModelCatalog.get_action_dist(ACTIONS, {}, None, "jax"),
        lambda: ModelCatalog.get_action_shape(ACTIONS, "jax"),
    ):
        with pytest.raises(ConfigError, match="framework 'jax' are not available; use framework='torch' or"):
            call()


def test_missing_tensorflow_is_explained_and_torch_goes_on_without():
    code = (
        "import sys\n"
        "sys.modules['tensorflow'] = None\n"
        "from gymnasium import spaces\n"
        "from rlframe.agents.dqn import DQNTrainer\n"
        "from rlframe.models import ModelCatalog\n"
        "from rlframe.utils.errors import ConfigError\n"
        "space = spaces.Box(-1, 1, (3,))\n"
        "ModelCatalog.get_model_v2(space, space, 2, {}, 'torch')\n"
        "for call in (\n"
        "    lambda: ModelCatalog.get_model_v2(space, space, 2, {}, 'tf'),\n"
        "    lambda: ModelCatalog.get_action_dist(space, {}, None, 'tf2'),\n"
        "    lambda: ModelCatalog.get_action_shape(space, 'tf'),\n"
        "    lambda: DQNTrainer({'framework': 'tf'}, env='CartPole-v1'),\n"
        "):\n"
        "    try:\n"
        "        call()\n"
        "    except ConfigError as error:\n"
        "        print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    message = (
        "framework='tf' needs TensorFlow, which is not installed: pip install 'rlframe[tf]', or set framework='torch'"
    )
    *models, trainer = done.stdout.splitlines()
    assert models == [message] * 3
    assert "pip install 'rlframe[tf]'" in trainer


def test_torch_loads_no_tensorflow():
    code = (
        "import sys\n"
        "from gymnasium import spaces\n"
        "from rlframe.models import ModelCatalog\n"
        "space = spaces.Box(-1, 1, (3,))\n"
        "ModelCatalog.get_model_v2(space, space, 2, {}, 'torch')\n"
        "ModelCatalog.get_action_dist(space, {}, None, 'torch')\n"
        "assert 'tensorflow' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert torch is not None
