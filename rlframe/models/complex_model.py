"""The default network for nested observations with images among them, once for both frameworks."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from rlframe.data.columns import OBS
from rlframe.models.conv_sizes import DEFAULT_FILTERS, filters_for
from rlframe.models.dist_plan import space_struct
from rlframe.models.fcnet_spec import HEAD, post_layers
from rlframe.models.layer_owner import Bound
from rlframe.models.layered_model import LayeredModel
from rlframe.models.nested_parts import nested_leaves, part_name
from rlframe.models.spec import Convolutions, Dense, ModelLayers
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor
from rlframe.utils.errors import UnsupportedSpaceException


class _Part(NamedTuple):
    """One leaf of the observations.

    Attributes:
        path: Keys that lead to it.
        size: Number of its features.
        convolutions: Of an image; None otherwise.
        image: What these consist of.
        counts: Numbers of values of a discrete leaf; empty otherwise.
        start: The smallest of them.
    """

    path: tuple[Any, ...]
    size: int
    convolutions: Bound = None
    counts: tuple[int, ...] = ()
    start: int = 0
    image: Convolutions | None = None

    def one_hot(self, leaf: Tensor) -> Tensor:
        """Returns discrete observations that came without preprocessing as float one-hot rows `[B, n]`."""
        columns = ops.reshape(ops.to_int(leaf), (-1, len(self.counts))) - self.start
        return ops.concat([ops.one_hot(columns[:, index], n) for index, n in enumerate(self.counts)], 1)


class ComplexInput(LayeredModel):
    """Images through convolutions, discrete parts one-hot, vectors as they are; all concatenated, then dense layers.

    The dense layers are `post_fcnet_hiddens`; output and value are linear heads behind them. `conv_filters` applies to
    every image; images of different sizes need sizes with default filters. The observation space is flat with the
    nested one as `original_space`, or the nested space itself.

    Raises:
        UnsupportedSpaceException: If the space is not nested, or a part of it cannot be handled.
    """

    _acts_in_numpy = False

    def _prepare_inputs(self) -> int:
        original = getattr(self.obs_space, "original_space", self.obs_space)
        struct = space_struct(original)
        if struct is original:
            raise UnsupportedSpaceException(
                f"ComplexInputNetwork wants a Dict or Tuple observation space; got {original}."
            )
        self._parts = [self._part(path, space) for path, space in nested_leaves(struct)]
        return sum(part.size for part in self._parts)

    def _part(self, path: tuple[Any, ...], space: Any) -> _Part:
        """Returns a leaf; adds convolutions for images."""
        names = {base.__name__ for base in type(space).__mro__}
        if "Discrete" in names:
            return _Part(path, int(space.n), counts=(int(space.n),), start=int(getattr(space, "start", 0)))
        if "MultiDiscrete" in names:
            counts = tuple(int(n) for n in np.asarray(space.nvec).reshape(-1))
            return _Part(path, sum(counts), counts=counts)
        if space.shape is None:
            raise UnsupportedSpaceException(
                f"ComplexInputNetwork cannot handle the part {path} of the observations: {space}."
            )
        given = self.model_config.get("conv_filters")
        # RLlib took no image within a Dict or Tuple of the Dict or Tuple for one: those of rare sizes stay vectors.
        if len(space.shape) != 3 or (len(path) > 1 and not given and tuple(space.shape[:2]) not in DEFAULT_FILTERS):
            return _Part(path, math.prod(space.shape))
        filters = filters_for(space.shape, given)
        activation = self.model_config.get("conv_activation", "relu")
        convs = Convolutions(f"convs.{part_name(path)}", tuple(space.shape), filters, activation, reduce=False)
        self.add_spec_layers([convs], 0)
        return _Part(path, convs.units, self.bind_spec([convs]), image=convs)

    def _describe_layers(self, num_outputs: int | None) -> ModelLayers:
        hiddens = [int(units) for units in self.model_config.get("post_fcnet_hiddens") or ()]
        linear = num_outputs is not None and not self.model_config.get("no_final_linear", False)
        if num_outputs is not None and not linear:
            hiddens[-1:] = [num_outputs]
        dense = post_layers(self.model_config, hiddens)
        output = [Dense("output", "linear", num_outputs, HEAD)] if linear else []
        values = (Dense("value", "linear", 1, HEAD),) if self.uses_value_function else None
        return ModelLayers((*dense, *output), values, len(dense))

    def _layer_inputs(self, input_dict: Any) -> Tensor:
        return ops.concat([self._features_of(part, input_dict[OBS]) for part in self._parts], 1)

    def _features_of(self, part: _Part, leaf: Any) -> Tensor:
        for key in part.path:
            leaf = leaf[key]
        if part.convolutions:
            return self.run_spec(part.convolutions, leaf)
        preprocessed = math.prod(leaf.shape[1:]) == part.size
        return part.one_hot(leaf) if part.counts and not preprocessed else ops.flat_rows(leaf)
