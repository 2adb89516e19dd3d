"""The layers of default networks under the names that RLlib 1.x gave them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import torch
from torch import nn

from rlframe.models.rllib_names import fitting_weights
from rlframe.models.torch.misc import SlimConv2d, SlimFC, activation_module


class _Submodules(dict[str, Any]):
    """A network's submodules, among which `model._modules["_logits"]` is found by RLlib's name, too."""

    def __init__(self, model: Any) -> None:
        super().__init__(model.__dict__["_modules"])
        self._model = model

    def __missing__(self, name: str) -> Any:
        if name not in self._model._rllib_layers:
            raise KeyError(name)
        return self._model._rllib_layers[name](self._model)


class RLlibLayers:
    """Finds layers by RLlib's names, so that programs can take a network apart, read its weights and write them.

    What is found are views: `model._hidden_layers[0]._model[0]` is the very `nn.Linear` that is called `hidden_0` here.
    A class says in `_rllib_layers` how its layers' views are made, and in `_rllib_heads` which submodules can be
    replaced under these names; in `_rllib_stacks` which rows of layers can, as attributes and how their names begin.
    """

    _rllib_layers: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    _rllib_heads: ClassVar[Mapping[str, str]] = {}
    _rllib_stacks: ClassVar[Mapping[str, tuple[str, str]]] = {}
    _derived_by_user: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Joins the names of all classes that this one derives from."""
        super().__init_subclass__(**kwargs)
        line = [base for base in reversed(cls.__mro__) if issubclass(base, RLlibLayers)]
        cls._rllib_layers = {name: make for base in line for name, make in base._rllib_layers.items()}
        cls._rllib_heads = {name: own for base in line for name, own in base._rllib_heads.items()}
        cls._derived_by_user = any(not base.__module__.startswith("rlframe.") for base in line)

    def __getattr__(self, name: str) -> Any:
        """Returns a submodule, parameter or buffer; or a layer by RLlib's name.

        Raises:
            AttributeError: If there is none; of `base_model`, which only TensorFlow's networks have, with advice.
        """
        try:
            return super().__getattr__(name)  # type: ignore[misc]  # nn.Module's
        except AttributeError as error:
            if name == "base_model":
                raise AttributeError(
                    f"{type(self).__name__} has no base_model: that is the Keras model of framework='tf', "
                    "RLlib's default. Here the default is 'torch': set framework='tf' in the config"
                ) from error
            if name not in self._rllib_layers:
                raise
        return self._rllib_layers[name](self)

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets an attribute; in a class derived from a network, a head or layers by RLlib's name replace the network's.

        Raises:
            ValueError: If it is a layer of RLlib's name that would not compute.
        """
        if type(self.__dict__.get("_modules")) is dict:  # nn.Module's own, before the first attribute
            self.__dict__["_modules"] = _Submodules(self)
        if name in self._rllib_layers and type(self).forward.__module__.startswith("rlframe."):  # type: ignore[attr-defined]
            own = self._rllib_heads.get(name, "")
            may = self._derived_by_user and isinstance(value, nn.Module)
            if may and self._replace_stack(name):
                super().__setattr__(name, value)
                return
            if not (may and own in self.__dict__.get("_modules", ())):
                raise ValueError(
                    f"{type(self).__name__}.{name} cannot be replaced: acting reads the network's own weights. Write "
                    f"into those of model.{name}, or derive a model of your own with the layers that you want."
                )
            name = own
        super().__setattr__(name, value)

    def _replace_stack(self, name: str) -> bool:
        """Has the module of this name compute in the place of several layers; returns whether these are there."""
        place, prefix = self._rllib_stacks.get(name, ("", ""))
        bound: Any = self.__dict__.get(place, ())
        rest = tuple(layer for layer in bound if layer.name != name and not layer.name.startswith(prefix))
        if len(rest) == len(bound):
            return False
        for layer in bound[: -len(rest) or None]:
            self.__dict__["_modules"].pop(layer.name)
        self.__dict__[place] = (bound[0]._replace(name=name, activation="linear", function=None), *rest)
        self._acts_in_numpy = False
        return True

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Loads a state dict: this network's, or that of the same network in RLlib 1.x."""
        module: Any = self
        own = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
        if state_dict and not set(state_dict) & set(own):
            arrays = {name: tensor.detach().cpu().numpy() for name, tensor in state_dict.items()}
            fitting = fitting_weights(own, arrays, owner=type(self).__name__)
            state_dict = {name: torch.from_numpy(array) for name, array in fitting.items()}
        return super().load_state_dict(state_dict, *args, **kwargs)  # type: ignore[misc]  # nn.Module's


def slim(module: Any, *behind: nn.Module | None) -> Any:
    """Returns a dense layer and what follows it as the `SlimFC` that RLlib made of them; other modules as they are."""
    if not isinstance(module, nn.Linear):
        return module
    layer = SlimFC.__new__(SlimFC)
    nn.Module.__init__(layer)
    layer._model = nn.Sequential(module, *(part for part in behind if part is not None))
    return layer


def slim_stack(model: Any, layers: Iterable[tuple[str, str | None]]) -> nn.Sequential:
    """Returns the layers (name in `model`, activation) as RLlib's sequence of `SlimFC`s."""
    return nn.Sequential(*(slim(model._modules[name], activation_module(activation)) for name, activation in layers))


def one_by_one(linear: Any) -> Any:
    """Returns a dense layer as the 1×1 convolution that RLlib made of it; it shares the memory, not the gradients."""
    if not isinstance(linear, nn.Linear):
        return linear
    layer = SlimConv2d(linear.in_features, linear.out_features, 1, 1, None, initializer=None, activation_fn=None)
    conv: Any = layer._model[0]
    conv.weight = nn.Parameter(linear.weight.detach()[:, :, None, None])
    conv.bias = nn.Parameter(linear.bias.detach())
    return layer
