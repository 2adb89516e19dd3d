"""DQN's model interface in PyTorch, with RLlib's names of its layers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, ClassVar

from torch import nn

from rlframe.agents.dqn.dqn_model import QHeads
from rlframe.models.spec import Layer
from rlframe.models.torch.layer_owner import TorchLayerOwner
from rlframe.models.torch.misc import activation_module
from rlframe.models.torch.rllib_layers import RLlibLayers, slim
from rlframe.models.torch.torch_modelv2 import TorchModelV2


class DQNTorchModel(QHeads, TorchLayerOwner, RLlibLayers, TorchModelV2, nn.Module):
    """Interface that DQN puts on a model, see `QHeads`; its heads are also `advantage_module` and `value_module`."""

    _rllib_layers: ClassVar[Any] = {
        "advantage_module": lambda model: _head_of_rllib(model, model.advantage_layers, "A"),
        "value_module": lambda model: _head_of_rllib(model, model.state_value_layers, "V"),
    }


def _head_of_rllib(model: Any, layers: Sequence[Layer], letter: str) -> nn.Sequential:
    """Returns a head's layers as RLlib's sequence: `dueling_A_0`, …, `A`, or with V."""
    named: OrderedDict[str, nn.Module] = OrderedDict()
    for layer in layers:
        activation = activation_module(getattr(layer, "activation", None))
        number = layer.name.removesuffix("_norm").rpartition("_")[2]
        name = letter if number == "output" else f"dueling_{letter}_{number}"
        if layer.name.endswith("_norm"):
            name = f"LayerNorm_{letter}_{number}"
        module = model.get_submodule(layer.name)
        named[name] = slim(module, activation) if isinstance(module, nn.Linear) else _followed(module, activation)
    return nn.Sequential(named)


def _followed(module: nn.Module, activation: nn.Module | None) -> nn.Module:
    return module if activation is None else nn.Sequential(module, activation)


#: The interface by a name that is the same in both frameworks.
DQNModel = DQNTorchModel
