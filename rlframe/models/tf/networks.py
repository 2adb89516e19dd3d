"""Networks of `rlframe.models.spec` in TensorFlow."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from rlframe.models.networks import CustomModelNetwork, LayeredNetwork, NetworksModel, TargetNames
from rlframe.models.spec import CustomNetwork, Network, Part, Variable
from rlframe.models.tf.check_model import check_model
from rlframe.models.tf.layer_owner import TFLayerOwner
from rlframe.models.tf.named_variables import in_loss
from rlframe.models.tf.rllib_layers import KerasView, network_of
from rlframe.models.tf.tf_modelv2 import TFModelV2
from rlframe.models.tf.variables import VariableOwner

Tensor: TypeAlias = Any


class _Kernels(VariableOwner):
    _NOT_SEARCHED = (*VariableOwner._NOT_SEARCHED, "spec")

    def kernels(self) -> list[Tensor]:
        """Returns the weight matrices and filters; no biases."""
        return [variable for variable in self.named_trainable_variables().values() if len(variable.shape) > 1]


class TFNetwork(LayeredNetwork, TFLayerOwner, _Kernels):
    """A network of layers; its variables are named as those of the torch sibling.

    Args:
        spec: What it consists of.
    """

    def __init__(self, spec: Network) -> None:
        self._build(spec, None)

    __call__ = LayeredNetwork.forward


class TFCustomNetwork(CustomModelNetwork, _Kernels):
    """A user's `TFModelV2` as a network.

    Args:
        spec: Widths, and the `model` section that names the model.
    """

    def __init__(self, spec: CustomNetwork) -> None:
        #: Whether it is a target network's.
        self.follows = False
        self._build(spec, "tf")
        check_model(self.model, spec.spaces()[0], spec.out_size)

    @property
    def training(self) -> bool:  # type: ignore[override]  # PyTorch's modules are told
        """Whether a loss is computed with it."""
        return in_loss() and not self.follows

    __call__ = CustomModelNetwork.forward


class Networks(NetworksModel, TFLayerOwner, TFModelV2):
    """The networks of a policy as its model; see `NetworksModel`.

    DDPG's names of them are Keras models, as they were in RLlib.
    """

    policy_model = KerasView(lambda model: network_of(model, "actor"))
    q_model = KerasView(lambda model: network_of(model, "q"))
    twin_q_model = KerasView(lambda model: network_of(model, "twin_q"))

    _NOT_SEARCHED = (*TFModelV2._NOT_SEARCHED, "parts", "view")

    def add_part(self, name: str, spec: Part) -> None:
        """Makes a variable, or an owner of some."""
        if isinstance(spec, Variable):
            setattr(self, name, self.add_weight(name, np.asarray(spec.value, np.float32)))
        else:
            setattr(self, name, TFNetwork(spec) if isinstance(spec, Network) else TFCustomNetwork(spec))


class SomeNetworks(TargetNames, VariableOwner):
    """Some of a model's networks, themselves, under their names: what a target network holds copies of.

    Args:
        model: The model.
        names: Which; "encoder" where there is one.
    """

    encoder: Any = None
    encode, __call__ = NetworksModel.encode, TargetNames.forward

    def __init__(self, model: Networks, names: tuple[str, ...]) -> None:
        for name in names:
            if getattr(model, name, None) is not None:
                setattr(self, name, getattr(model, name))

    def variables(self, as_dict: bool = False) -> list[Any] | dict[str, Any]:
        """Returns all variables, as a list or by name."""
        named = self.named_variables()
        return named if as_dict else list(named.values())
