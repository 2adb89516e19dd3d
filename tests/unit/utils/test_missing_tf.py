"""Where TensorFlow is not installed, programs that serve both frameworks can be imported, and learn with PyTorch."""

import subprocess
import sys

import pytest

from rlframe.utils.missing_tf import MissingTensorFlow

WITHOUT = "import sys; sys.modules['tensorflow'] = sys.modules['keras'] = None\n"

EVERY_MODULE = """
import importlib, pkgutil, rlframe
for module in pkgutil.walk_packages(rlframe.__path__, "rlframe."):
    if "tf" in module.name:
        importlib.import_module(module.name)
        print(module.name)
"""

BOTH_FRAMEWORKS = """
from rlframe.agents.dqn.dqn_tf_policy import DQNTFPolicy
from rlframe.agents.ppo import PPOTrainer
from rlframe.agents.ppo.ppo_tf_policy import PPOTFPolicy
from rlframe.agents.ppo.ppo_torch_policy import PPOTorchPolicy
from rlframe.models import ModelCatalog
from rlframe.models.tf.fcnet import FullyConnectedNetwork
from rlframe.models.tf.recurrent_net import RecurrentNetwork
from rlframe.models.tf.tf_action_dist import Categorical, TFActionDistribution
from rlframe.models.tf.tf_modelv2 import TFModelV2
from rlframe.models.torch.fcnet import FullyConnectedNetwork as TorchFC
from rlframe.policy.tf_policy_template import build_tf_policy
from rlframe.utils.framework import try_import_tf

tf1, tf, tfv = try_import_tf()

class TFModel(TFModelV2):
    def forward(self, input_dict, state, seq_lens):
        return tf.zeros(2), state

class TFMemory(RecurrentNetwork):
    pass

class TorchModel(TorchFC):
    pass

class TFDist(TFActionDistribution):
    pass

Mine = build_tf_policy(name="Mine", loss_fn=lambda policy, model, dist_class, batch: 0.0)
Derived = PPOTFPolicy.with_updates(name="Derived")
by_framework = {"torch": PPOTorchPolicy}
chosen = PPOTrainer.with_updates(
    default_policy=PPOTFPolicy, get_policy_class=lambda config: by_framework.get(config["framework"])
)
ModelCatalog.register_custom_model("mine", TorchModel)
small = {"num_workers": 0, "train_batch_size": 40, "sgd_minibatch_size": 20, "num_sgd_iter": 1, "framework": "torch"}
trained = chosen({**small, "model": {"custom_model": "mine"}}, env="CartPole-v1").train()
assert trained["timesteps_total"] == 40
for make in (
    lambda: TFModel(None, None, 2, {}, "name"),
    lambda: PPOTrainer({**small, "framework": "tf"}, env="CartPole-v1"),
    lambda: PPOTrainer({**small, "model": {"custom_model": TFModel}}, env="CartPole-v1"),
):
    try:
        make()
    except Exception as error:
        print(error)
"""


def run(code):
    return subprocess.run([sys.executable, "-c", WITHOUT + code], capture_output=True, text=True, check=True).stdout


def test_every_module_of_tensorflow_can_be_imported():
    assert "rlframe.models.tf.tf_modelv2" in run(EVERY_MODULE).split()


def test_a_program_for_both_frameworks_learns_with_the_one_that_is_there():
    model, config, other = run(BOTH_FRAMEWORKS).splitlines()
    advice = "needs TensorFlow, which is not installed: pip install 'rlframe[tf]', or set framework='torch'"
    assert model == f"TFModel {advice}"
    assert config == f"framework='tf' {advice}"
    assert other.startswith("The model 'TFModel' is a TFModelV2, made for framework='tf'")


def test_what_stands_for_tensorflow_can_be_named_and_not_called():
    tf = MissingTensorFlow()
    assert tf.keras.layers is not tf
    assert not isinstance(3, tf.Tensor)
    assert not hasattr(tf, "__wrapped__")
    assert repr(tf.nn.relu) == "<tensorflow.nn.relu, which is not installed>"

    @tf.function
    def doubled(x: tf.Tensor | None):
        return 2 * x

    class Layer(tf.keras.layers.Layer):
        """Defined at the top of a user's file."""

    assert doubled(3) == 6
    with pytest.raises(ModuleNotFoundError, match=r"Layer needs TensorFlow, which is not installed: pip install"):
        Layer()
    with pytest.raises(ModuleNotFoundError, match=r"tensorflow\.zeros\(\) needs TensorFlow"):
        tf.zeros(3)
