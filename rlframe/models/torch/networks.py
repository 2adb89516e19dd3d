"""Networks of `rlframe.models.spec` in PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rlframe.models.networks import CustomModelNetwork, LayeredNetwork, NetworksModel, TargetNames
from rlframe.models.spec import CustomNetwork, Network, Part, Variable
from rlframe.models.torch.check_model import check_model
from rlframe.models.torch.layer_owner import TorchLayerOwner
from rlframe.models.torch.misc import activation_module
from rlframe.models.torch.rllib_layers import slim
from rlframe.models.torch.torch_modelv2 import TorchModelV2


class _Kernels(nn.Module):
    def kernels(self) -> list[Tensor]:
        """Returns the weight matrices and filters; no biases."""
        return [parameter for parameter in self.parameters() if parameter.dim() > 1]


class TorchNetwork(LayeredNetwork, TorchLayerOwner, _Kernels):
    """A network of layers; its submodules carry the layers' names.

    Args:
        spec: What it consists of.
    """

    def __init__(self, spec: Network) -> None:
        nn.Module.__init__(self)
        self._build(spec, np.random.default_rng(int(torch.randint(2**62, ()))))

    def __iter__(self) -> Iterator[nn.Module]:
        """Yields the layers as in RLlib's sequences, whose `SlimFC`s programs take apart; outputs squash in a step."""
        for layer in self._layers:
            module, activation = self.get_submodule(layer.name), activation_module(layer.activation)
            together = isinstance(module, nn.Linear) and layer is not self._layers[-1]
            yield slim(module, activation) if together else slim(module)
            if activation is not None and not together:
                yield activation


class TorchCustomNetwork(CustomModelNetwork, _Kernels):
    """A user's `TorchModelV2` as a network.

    Args:
        spec: Widths, and the `model` section that names the model.
    """

    def __init__(self, spec: CustomNetwork) -> None:
        nn.Module.__init__(self)
        self._build(spec, "torch")
        check_model(self.model, spec.spaces()[0], spec.out_size)


class Networks(NetworksModel, TorchLayerOwner, TorchModelV2, nn.Module):
    """The networks of a policy as its model; see `NetworksModel`."""

    def add_part(self, name: str, spec: Part) -> None:
        """Registers a module, or a parameter."""
        if isinstance(spec, Variable):
            self.register_parameter(name, nn.Parameter(torch.tensor(spec.value, dtype=torch.float32)))
        else:
            made = TorchNetwork(spec) if isinstance(spec, Network) else TorchCustomNetwork(spec)
            self.add_module(name, made)


class SomeNetworks(TargetNames, nn.Module):
    """Some of a model's networks, themselves, under their names: what a target network copies.

    Args:
        model: The model.
        names: Which; "encoder" where there is one.
    """

    def __init__(self, model: Networks, names: tuple[str, ...]) -> None:
        super().__init__()
        self.register_module("encoder", None)
        for name in names:
            if model._modules.get(name) is not None:
                self.add_module(name, model._modules[name])

    def variables(self, as_dict: bool = False) -> list[Any] | dict[str, Any]:
        """Returns all parameters as a list, or the state dict (buffers included)."""
        return dict(self.state_dict()) if as_dict else list(self.parameters())

    encode = NetworksModel.encode
    encoder: Any
