"""The base of PyTorch models."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from rlframe.data.columns import OBS
from rlframe.models.custom import refuse_unknown_options
from rlframe.models.modelv2 import ModelV2

__all__ = ["TorchModelV2", "as_module", "refuse_unknown_options"]


def _call(model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
    """Calls a class with PyTorch's module in front: with a batch as a model, with tensors as a module."""
    way: Any = ModelV2 if isinstance(inputs, Mapping) else nn.Module
    return way.__call__(model, inputs, *args, **kwargs)


class TorchModelV2(ModelV2):
    """A model that is also an `nn.Module`: `class MyModel(TorchModelV2, nn.Module)`, both initialised in `__init__`.

    Args:
        obs_space: Preprocessed observation space.
        action_space: Action space of the environment.
        num_outputs: Width of the outputs the policy wants, or None.
        model_config: The `model` section of the config.
        name: Name of the model.
        **options: Entries of `model_config["custom_model_config"]` that a subclass passed on without using them. They
            are accepted, so that `super().__init__(*args, **kwargs)` works, and have no further effect.

    Raises:
        ValueError: If the class is no `nn.Module`.
        TypeError: If a keyword is no entry of `custom_model_config`.
    """

    #: Where `forward` draws from; None is PyTorch's global stream. A policy gives it to models of users' own.
    random_stream: contextlib.AbstractContextManager[Any] | None = None
    #: Whether `forward` gets `obs` as preprocessing leaves it: flat where the space is nested.
    _takes_preprocessed = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Makes `class MyModel(nn.Module, TorchModelV2)` callable on batches.

        There PyTorch's call hides the one of models, which restores observations: in RLlib, too, such get them as they
        are.
        """
        super().__init_subclass__(**kwargs)
        if cls.__call__ is nn.Module.__call__:
            cls.__call__, cls._takes_preprocessed = _call, True  # type: ignore[method-assign,assignment]

    def __init__(
        self,
        obs_space: Any,
        action_space: Any,
        num_outputs: int | None,
        model_config: dict[str, Any],
        name: str | None,
        **options: Any,
    ) -> None:
        if not isinstance(self, nn.Module):
            raise ValueError(
                f"{type(self).__name__} must also derive from torch.nn.Module: write "
                f"`class {type(self).__name__}(TorchModelV2, nn.Module)` and call nn.Module.__init__(self)."
            )
        refuse_unknown_options(type(self), options, model_config)
        super().__init__(obs_space, action_space, num_outputs, model_config, name, framework="torch")
        #: Scratch space of losses and statistics functions.
        self.tower_stats: dict[str, Any] = {}

    def variables(self, as_dict: bool = False) -> list[Any] | dict[str, Any]:
        """Returns all parameters as a list, or the module's state dict (buffers included)."""
        module = self._module()
        return dict(module.state_dict()) if as_dict else list(module.parameters())

    def trainable_variables(self, as_dict: bool = False) -> list[Any] | dict[str, Any]:
        """Returns the parameters that require gradients, as a list or by name."""
        named = {name: value for name, value in self._module().named_parameters() if value.requires_grad}
        return named if as_dict else list(named.values())

    def networks(self) -> Iterator[Any]:
        """Yields the model and the modules inside it."""
        yield from self._module().modules()

    def _restored(self, input_dict: Any) -> Any:
        restored = super()._restored(input_dict)
        if self._takes_preprocessed:
            restored[OBS] = self._as_arrays(self._observed(input_dict))
        return restored

    def _as_arrays(self, obs: Any) -> Any:
        if isinstance(obs, np.ndarray):
            parameter = next(self.parameters(), None)  # type: ignore[attr-defined]  # nn.Module's
            return torch.as_tensor(obs, device=None if parameter is None else parameter.device)
        return obs

    def context(self) -> contextlib.AbstractContextManager[Any]:
        """Returns the context in which `forward` runs: what it draws is of `random_stream`, if it has one."""
        return contextlib.nullcontext() if self.random_stream is None else self.random_stream

    def _module(self) -> nn.Module:
        assert isinstance(self, nn.Module)
        if "_parameters" not in self.__dict__:
            raise ValueError(f"{type(self).__name__}.__init__ must call nn.Module.__init__(self).")
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Returns the attributes to copy or pickle: results of the last forward pass lose their autograd history."""
        state = dict(self.__dict__)
        state["tower_stats"] = {}
        for key, value in state.items():
            if isinstance(value, torch.Tensor) and value.grad_fn is not None:
                state[key] = value.detach()
        return state


def as_module(model_class: Any) -> Any:
    """Returns a class of torch models that is an `nn.Module`, too, whatever it derives from.

    RLlib mixed the classes of its memories into those in front of them, so these needed not be modules themselves.
    """
    if (
        not isinstance(model_class, type)
        or not issubclass(model_class, TorchModelV2)
        or issubclass(model_class, nn.Module)
    ):
        return model_class

    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        nn.Module.__init__(self)
        model_class.__init__(self, *args, **kwargs)

    functools.update_wrapper(construct, model_class.__init__)
    names = {"__init__": construct, "__module__": model_class.__module__}
    return type(model_class.__name__, (model_class, nn.Module), names)
