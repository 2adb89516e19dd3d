"""Objects that have the layers of specs: what `rlframe.models.{torch,tf}.layer_owner` do in their frameworks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from rlframe.losses.q_learning import dueling_heads, expected_values
from rlframe.models.spec import Atoms, Dueling, Layer, Sum
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor

#: Layers as a framework runs them.
Bound: TypeAlias = Any


class LayerOwner:
    """Makes the layers of a spec, under their names, and runs them."""

    def init_spec_owner(self) -> None:
        """Makes the object able to have layers, where the framework asks for it; before anything else."""

    def init_model_base(self, *arguments: Any, **options: Any) -> None:
        """Initialises the framework's base of models with `ModelV2`'s arguments."""
        raise NotImplementedError

    def add_spec_layers(
        self, layers: Sequence[Layer], in_size: int, rng: np.random.Generator | None = None
    ) -> list[int]:
        """Makes the weights of layers that stand in a row.

        Args:
            layers: The layers.
            in_size: Width of what the first one gets.
            rng: Where initial weights are drawn from; None is the framework's own stream.

        Returns:
            `in_size`, and the width behind each of the layers.
        """
        widths = [in_size]
        for layer in layers:
            if isinstance(layer, Dueling | Sum):
                for branch in layer.branches:
                    self.add_spec_layers(branch, widths[-1], rng)
            elif isinstance(layer, Atoms):
                self._add_spec_constant(layer.name, layer.support)
            else:
                self._add_spec_layer(layer, widths[-1], rng)
            widths.append(layer.width_behind(widths[-1]))
        return widths

    def _add_spec_layer(self, layer: Layer, in_size: int, rng: np.random.Generator | None) -> None:
        """Makes the weights of one layer."""
        raise NotImplementedError

    def _add_spec_constant(self, name: str, value: Any) -> None:
        """Keeps an array as a tensor in the attribute `name`, where the weights are; it is none of them."""
        raise NotImplementedError

    def bind_spec(self, layers: Sequence[Layer]) -> Bound:
        """Returns layers as `run_spec` takes them."""
        raise NotImplementedError

    def run_spec(self, layers: Bound, x: Tensor, *, training: bool = False, frozen: bool = False) -> Tensor:
        """Returns what layers make of rows.

        Args:
            layers: What `bind_spec` gave.
            x: Float `[B, n]`; images where they begin with convolutions.
            training: Whether batch normalisation goes by the batch, and follows it.
            frozen: Whether nobody asks for gradients of the weights, which then may be left out.

        Returns:
            Float `[B, m]`.
        """
        raise NotImplementedError

    def has_spec_layers(self, layers: Sequence[Layer]) -> bool:
        """Returns whether nobody has put something else in the place of one of the layers."""
        raise NotImplementedError

    def spec_variable(self, layer: str, part: str) -> Any:
        """Returns the framework's parameter or buffer `<layer>.<part>`."""
        raise NotImplementedError

    def _run_spec_composite(self, layer: Any, branches: tuple[Bound, ...], x: Tensor, **how: bool) -> Tensor:
        """Returns what a layer that has no weights of its own, but perhaps branches, makes of rows."""
        if isinstance(layer, Dueling):
            scores, values = (self.run_spec(branch, x, **how) for branch in branches)
            return dueling_heads(values, scores, layer.atoms)
        if isinstance(layer, Sum):
            left, right = (self.run_spec(branch, x, **how) for branch in branches)
            return left + right
        support = getattr(self, layer.name)
        return expected_values(ops.split_last(x, layer.units), support)
