"""Which framework a trainer takes where a program says none: that of its custom models."""

import logging

import gymnasium as gym
import pytest

from rlframe.config.renames import RenamedKeyWarning
from rlframe.models import ModelCatalog
from rlframe.trainer.setup import framework_of_models, settle_framework
from rlframe.utils import shared_names
from rlframe.utils.errors import ConfigError
from tests.helpers.frameworks import needs_tf


class TFModelV2:
    """Stands above a model in its line of inheritance; the framework is told by this name."""


class TorchModelV2:
    """The same."""


class OfTF(TFModelV2):
    """A model."""


class OfTorch(TorchModelV2):
    """A model."""


WHOLE = {f"key_{i}": None for i in range(20)}


def config(**keys):
    return {**WHOLE, "framework": "torch", **keys}


@pytest.mark.parametrize(
    ("keys", "framework"),
    [
        ({"model": {"custom_model": OfTF}}, "tf"),
        ({"model": {"custom_model": OfTorch}}, "torch"),
        ({"model": {"custom_model": "of_tf"}}, "tf"),
        ({"model": {"custom_model": "a name that is refused later"}}, None),
        ({"model": {"custom_model": None}}, None),
        ({"Q_model": {"custom_model": OfTF}}, "tf"),
        ({"multiagent": {"policies": {"a": (None, None, None, {"model": {"custom_model": OfTF}}), "b": None}}}, "tf"),
        ({"multiagent": {"policies": {"a", "b"}}}, None),
        ({"model": {"custom_model": OfTF}, "policy_model": {"custom_model": OfTorch}}, None),
    ],
)
def test_models_tell_their_framework(keys, framework):
    ModelCatalog.register_custom_model("of_tf", OfTF)
    assert framework_of_models(config(**keys)) == framework


def test_eager_of_rllib_0_8_that_is_off_has_not_said_a_framework():
    given = {"eager": False, "model": {"custom_model": OfTF}}
    assert "framework='tf' is taken" in settle_framework(whole := config(**given), given)
    assert whole["framework"] == "tf"


def test_a_copy_of_the_defaults_has_not_said_a_framework():
    given = config(model={"custom_model": OfTF})
    assert "framework='tf' is taken" in settle_framework(whole := dict(given), given)
    assert whole["framework"] == "tf"


@pytest.mark.parametrize(
    "given",
    [
        {"framework": "torch", "model": {"custom_model": OfTF}},
        {"model": {"custom_model": OfTorch}},
        {"framework": "tf2"},
    ],
)
def test_what_is_said_or_fits_stays(given):
    whole = config(**given)
    before = whole["framework"]
    assert settle_framework(whole, given) is None
    assert whole["framework"] == before


@needs_tf
def test_a_program_with_a_tensorflow_model_trains_without_saying_a_framework(caplog):
    from rlframe.agents.pg import PGTrainer
    from rlframe.models.tf.fcnet import FullyConnectedNetwork

    class Mine(FullyConnectedNetwork):
        pass

    given = {"env": "CartPole-v1", "train_batch_size": 20, "model": {"custom_model": Mine, "fcnet_hiddens": [4]}}
    logging.getLogger("rlframe").propagate = True
    with caplog.at_level(logging.WARNING):
        trainer = PGTrainer(config=given)
    assert trainer.config["framework"] == "tf"
    assert isinstance(trainer.get_policy().model, Mine)
    assert trainer.compute_single_action(gym.make("CartPole-v1").reset()[0]) in (0, 1)


def test_names_that_another_process_registered_tell_their_framework(monkeypatch):
    monkeypatch.setattr(shared_names, "_look_up", lambda kind, name: OfTF if (kind, name) == ("model", "far") else None)
    assert framework_of_models(config(model={"custom_model": "far"})) == "tf"


class PolicyOfTF:
    """A policy, as far as its framework goes."""

    framework = "tf"


def test_policies_of_a_table_tell_their_framework():
    given = {"multiagent": {"policies": {"a": (PolicyOfTF, None, None, {}), "b": (None, None, None, {})}}}
    assert "policy is made for TensorFlow" in settle_framework(whole := config(**given), given)
    assert whole["framework"] == "tf"


@needs_tf
def test_a_trainers_own_policy_of_tensorflow_trains_without_saying_a_framework():
    from rlframe.agents.pg import PGTrainer
    from rlframe.agents.pg.pg_tf_policy import PGTFPolicy

    mine = PGTrainer.with_updates(name="Mine", default_policy=PGTFPolicy, get_policy_class=lambda _: PGTFPolicy)
    given = {"env": "CartPole-v1", "train_batch_size": 20, "model": {"fcnet_hiddens": [4]}}
    assert mine(config=given).config["framework"] == "tf"
    with pytest.raises(ConfigError, match="framework: got 'torch', but the policy PGTFPolicy of Mine learns in 'tf'"):
        mine(config={**given, "framework": "torch"})


def test_the_choice_of_a_policy_reads_what_rllib_0_8_called_the_framework():
    from rlframe.agents.pg import PGTrainer
    from rlframe.agents.pg.pg_torch_policy import PGTorchPolicy

    asked = []
    mine = PGTrainer.with_updates(get_policy_class=lambda keys: asked.append(keys["use_pytorch"]) or PGTorchPolicy)
    with pytest.warns(RenamedKeyWarning, match="use_pytorch is called framework"):
        trainer = mine(config={"env": "CartPole-v1", "train_batch_size": 20, "use_pytorch": True})
    assert asked == [True]
    assert "use_pytorch" not in trainer.config


@needs_tf
def test_a_distribution_of_tensorflow_trains_without_saying_a_framework():
    from rlframe.agents.pg import PGTrainer
    from rlframe.models.tf.tf_action_dist import Categorical

    class Sharper(Categorical):
        """Logits at half the temperature."""

        def __init__(self, inputs, model=None):
            super().__init__(inputs * 2.0, model)

    ModelCatalog.register_custom_action_dist("sharper", Sharper)
    model = {"fcnet_hiddens": [4], "custom_action_dist": "sharper"}
    trainer = PGTrainer(config={"env": "CartPole-v1", "train_batch_size": 20, "model": model})
    assert trainer.config["framework"] == "tf"
    trainer.train()


def test_distributions_tell_their_framework():
    from rlframe.models.torch.torch_action_dist import TorchCategorical

    ModelCatalog.register_custom_action_dist("of_torch", TorchCategorical)
    assert framework_of_models(config(model={"custom_action_dist": "of_torch"})) == "torch"
    assert framework_of_models(config(model={"custom_action_dist": TorchCategorical})) == "torch"
    assert framework_of_models(config(model={"custom_action_dist": "a name that is refused later"})) is None


@needs_tf
def test_a_choice_that_refuses_pytorch_beside_a_default_of_tensorflow_is_asked_again_with_tensorflow():
    from rlframe.agents.pg import PGTrainer
    from rlframe.agents.pg.pg_tf_policy import PGTFPolicy

    def choose(config):
        if config["framework"] == "torch":
            raise ValueError("there is none for PyTorch")
        return PGTFPolicy

    mine = PGTrainer.with_updates(name="Mine", default_policy=PGTFPolicy, get_policy_class=choose)
    given = {"env": "CartPole-v1", "train_batch_size": 20, "model": {"fcnet_hiddens": [4]}}
    assert mine(config=given).config["framework"] == "tf"
    with pytest.raises(ValueError, match="there is none for PyTorch"):
        mine(config={**given, "framework": "torch"})
