"""Who has layers of `rlframe.models.spec` in PyTorch, and how they run; `layer_modules` has what they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rlframe.fast.dense_layer_torch import dense
from rlframe.models.actor_layers import normalize_activation
from rlframe.models.layer_owner import LayerOwner
from rlframe.models.spec import Atoms, Convolutions, Dueling, Layer, Sum
from rlframe.models.torch.layer_modules import KINDS, BatchRenorm, FixedDense, _Rescale, make_module
from rlframe.models.torch.misc import activation_function
from rlframe.models.torch.torch_modelv2 import TorchModelV2

#: Models that were pickled name these here.
_PICKLED_HERE = (BatchRenorm, FixedDense, _Rescale)


class BoundLayer(NamedTuple):
    """A layer as it is run.

    Attributes:
        name: Of the submodule.
        activation: Its name.
        function: The activation; None for "linear".
        composite: The layer, where it has no submodule of its own.
        branches: Its branches.
    """

    name: str
    activation: str
    function: Callable[[Tensor], Tensor] | None
    composite: Dueling | Sum | Atoms | None = None
    branches: tuple[tuple[BoundLayer, ...], ...] = ()


class TorchLayerOwner(LayerOwner):
    """Has layers as submodules of their names, beside `nn.Module`; those in "<a>.<b>" stand in a list "<a>"."""

    def init_spec_owner(self) -> None:
        """Initialises `nn.Module` if nobody has."""
        if "_parameters" not in self.__dict__:
            nn.Module.__init__(self)  # type: ignore[arg-type]  # it is one

    def init_model_base(self, *arguments: Any, **options: Any) -> None:
        """Initialises `nn.Module` and `TorchModelV2`."""
        nn.Module.__init__(self)  # type: ignore[arg-type]  # it is one
        TorchModelV2.__init__(self, *arguments, **options)  # type: ignore[arg-type]  # and one of these

    def _add_spec_layer(self, layer: Layer, in_size: int, rng: np.random.Generator | None) -> None:
        """Adds the submodule of a layer."""
        owner: Any = self
        *outer, name = layer.name.split(".")
        for container in outer:
            if container not in owner._modules:
                owner.add_module(container, nn.ModuleList())
            owner = owner._modules[container]
        owner.add_module(name, make_module(layer, in_size, rng))

    def _add_spec_constant(self, name: str, value: Any) -> None:
        """Registers a buffer that is no part of the state."""
        module: Any = self
        module.register_buffer(name, torch.as_tensor(value), persistent=False)

    def bind_spec(self, layers: Sequence[Layer]) -> tuple[BoundLayer, ...]:
        """Returns layers with their activations."""
        return tuple(self._bind_spec_layer(layer) for layer in layers)

    def _bind_spec_layer(self, layer: Layer) -> BoundLayer:
        if isinstance(layer, Dueling | Sum | Atoms):
            branches = () if isinstance(layer, Atoms) else layer.branches
            return BoundLayer(layer.name, "linear", None, layer, tuple(self.bind_spec(branch) for branch in branches))
        inside = isinstance(layer, Convolutions)  # which have their activations themselves
        activation = normalize_activation(None if inside else getattr(layer, "activation", None))
        return BoundLayer(layer.name, activation, activation_function(activation))

    def run_spec(
        self, layers: tuple[BoundLayer, ...], x: Tensor, *, training: bool = False, frozen: bool = False
    ) -> Tensor:
        """Returns what layers make of rows `[B, n]`."""
        # By name, not by reference: a replaced or deep-copied submodule is then the one that computes.
        owner: Any = self
        modules = owner._modules
        for name, activation, function, composite, branches in layers:
            if composite is not None:
                x = self._run_spec_composite(composite, branches, x, training=training, frozen=frozen)
                continue
            module = modules.get(name) or owner.get_submodule(name)
            if isinstance(module, BatchRenorm):
                x = module(x, training)
                x = x if function is None else function(x)
            else:
                x = dense(x, module, activation, function, frozen=frozen)
        return x

    def has_spec_layers(self, layers: Sequence[Layer]) -> bool:
        """Returns whether the submodules are of the kinds that the layers have."""
        owner: Any = self
        modules = owner._modules
        return all(
            isinstance(modules.get(layer.name) or owner.get_submodule(layer.name), KINDS[layer.kind])
            for layer in layers
        )

    def spec_variable(self, layer: str, part: str) -> Tensor:
        """Returns a parameter or buffer."""
        owner: Any = self
        made: Tensor = getattr(owner._modules.get(layer) or owner.get_submodule(layer), part)
        return made
