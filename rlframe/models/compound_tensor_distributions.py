"""Distributions of actions that have parts, for both frameworks: several choices, and the leaves of nested spaces."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tree

from rlframe.models.dist_plan import nested_options, plan_dist, space_struct
from rlframe.models.tensor_distributions import TensorDistribution, size_of, sum_last
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor

#: What a list of rows of actions consists of, unlike one of tensors by component.
_IN_NUMPY = (np.ndarray, np.generic, int, list, tuple)


def _columns(rows: Sequence[Tensor]) -> Tensor:
    """Returns tensors `[B]` beside each other, `[B, N]`."""
    return ops.concat([each[:, None] for each in rows], 1)


def _total(terms: Sequence[Tensor]) -> Tensor:
    total: Tensor = functools.reduce(operator.add, terms)
    return total


class MultiCategorical(TensorDistribution):
    """Several independent choices; logits of all lie side by side in `[B, ΣA_i]`.

    Args:
        inputs: Logits. Float `[B, ΣA_i]`.
        model: The model that made them; may be None.
        input_lens: Number of choices A_i of each component; left out only where a derived class sets `cats` itself.
        action_space: Gives the shape and dtype of actions, where `shape` and `dtype` are not given.
        shape: Shape of one action; None is `[len(input_lens)]`.
        dtype: Integer NumPy dtype of actions; None is int64.
    """

    #: The framework's class of one choice.
    component: Any

    def __init__(
        self,
        inputs: Any,
        model: Any = None,
        input_lens: Sequence[int] = (),
        action_space: Any = None,
        *,
        shape: tuple[int, ...] | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(inputs, model)
        self.input_lens = tuple(int(length) for length in input_lens)
        self._components: list[Any] = []
        if not self.input_lens and type(self).__init__ is not type(self).known_constructor:
            return  # a program's own constructor, which sets `cats` behind this one
        if sum(self.input_lens) != self.inputs.shape[1]:
            raise ValueError(f"input_lens {self.input_lens} do not add up to the {self.inputs.shape[1]} inputs.")
        if action_space is not None and shape is None:
            shape, dtype = tuple(action_space.shape), action_space.dtype
        self._shape = (len(self.input_lens),) if shape is None else tuple(shape)
        # PyTorch lacks most unsigned types; int64 serves them all.
        self._bits = 32 if dtype is not None and np.dtype(dtype) == np.int32 else 64
        self._components = [self.component(part, model) for part in ops.split(self.inputs, self.input_lens)]

    def _stack(self, components: list[Tensor]) -> Tensor:
        return ops.to_int(ops.reshape(_columns(components), (-1, *self._shape)), self._bits)

    def _draw(self) -> Tensor:
        return self._stack([each.sample() for each in self._components])

    def _mode(self) -> Tensor:
        return self._stack([each.deterministic_sample() for each in self._components])

    def logp(self, actions: Any) -> Tensor:
        """Returns the summed log-likelihood of the components of `actions`, integer `[B, *shape]`. Float `[B]`.

        A list of tensors `[B]` has one for each component, and so have the rows of an array `[components, B]`.
        """
        by_part = (len(self._components), self.inputs.shape[0])
        if isinstance(actions, np.ndarray) and actions.shape == by_part != by_part[::-1]:
            actions = actions.T
        if isinstance(actions, (list, tuple)) and not any(isinstance(each, _IN_NUMPY) for each in actions):
            actions = _columns(actions)
        index = ops.reshape(ops.to_int(self._as_tensor(actions)), (-1, len(self._components)))
        return _total([each.logp(index[:, i]) for i, each in enumerate(self._components)])

    def multi_entropy(self) -> Tensor:
        """Returns the entropy of every component. Float `[B, components]`."""
        return _columns([each.entropy() for each in self._components])

    def entropy(self) -> Tensor:
        """Returns the summed entropy. Float `[B]`."""
        return sum_last(self.multi_entropy())

    def multi_kl(self, other: Any) -> Tensor:
        """Returns the divergence of every component. Float `[B, components]`."""
        pairs = zip(self._components, other._components, strict=True)
        return _columns([mine.kl(theirs) for mine, theirs in pairs])

    def kl(self, other: Any) -> Tensor:
        """Returns the summed divergence. Float `[B]`."""
        return sum_last(self.multi_kl(other))

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:
        """Returns the number of logits."""
        del model_config
        return plan_dist(action_space).dim

    known_constructor = __init__


class MultiActionDistribution(TensorDistribution):
    """Independent distributions for the leaves of a Dict or Tuple action space.

    Args:
        inputs: Outputs of the model for all leaves side by side. Float `[B, ΣK_i]`.
        model: The model that made them; may be None.
        child_distributions: One distribution class (or partial) per leaf, in the order of `tree.flatten`.
        input_lens: Width K_i of each leaf's inputs, a list or nested as the space is; the attribute is a list.
        action_space: The Dict or Tuple space; or give `structure` and `leaf_shapes`.
        structure: Any nested dict or tuple with the action space's structure.
        leaf_shapes: Shape of one action of every leaf, to cut apart actions that come concatenated.
    """

    #: The catalogue binds subclasses that programs register to the distributions of the action space's leaves.
    takes_children = True

    def __init__(  # noqa: PLR0913 - the first five are the signature users' programs call
        self,
        inputs: Any,
        model: Any = None,
        *,
        child_distributions: Any,
        input_lens: Any,
        action_space: Any = None,
        structure: Any = None,
        leaf_shapes: Sequence[tuple[int, ...]] | None = None,
    ) -> None:
        super().__init__(inputs, model)
        if action_space is not None:
            options, _ = nested_options(action_space)  # the children are given, so leaves may be of any kind
            structure, leaf_shapes = options["structure"], options["leaf_shapes"]
        if structure is None or leaf_shapes is None:
            raise ValueError(f"{type(self).__name__} needs action_space=, or structure= and leaf_shapes=.")
        self.action_space_struct = structure if action_space is None else space_struct(action_space)
        self._structure, self._leaf_shapes = structure, leaf_shapes
        lens = input_lens if isinstance(input_lens, (Mapping, int)) else list(input_lens)  # or an array, or a generator
        self.input_lens = [int(length) for length in tree.flatten(lens)]
        parts = ops.split(self.inputs, self.input_lens)
        children = tree.flatten(child_distributions)
        self.flat_child_distributions = [child(part, model) for child, part in zip(children, parts, strict=True)]

    def _draw(self) -> Any:
        return tree.unflatten_as(self._structure, [child.sample() for child in self.flat_child_distributions])

    def _mode(self) -> Any:
        modes = [child.deterministic_sample() for child in self.flat_child_distributions]
        return tree.unflatten_as(self._structure, modes)

    def sampled_action_logp(self) -> Tensor:
        """Returns the summed log-likelihood of the leaves drawn last. Float `[B]`."""
        return _total([child.sampled_action_logp() for child in self.flat_child_distributions])

    def logp(self, x: Any) -> Tensor:
        """Returns summed log-likelihoods of nested actions, or of actions concatenated to `[B, ΣA_i]`. Float `[B]`."""
        leaves = tree.flatten(x) if isinstance(x, (Mapping, tuple, list)) else self._split(self._as_tensor(x))
        pairs = zip(self.flat_child_distributions, leaves, strict=True)
        return _total([child.logp(leaf) for child, leaf in pairs])

    def _split(self, x: Tensor) -> list[Tensor]:
        parts = ops.split(x, [size_of(shape) for shape in self._leaf_shapes])
        return [ops.reshape(part, (-1, *shape)) for part, shape in zip(parts, self._leaf_shapes, strict=True)]

    def entropy(self) -> Tensor:
        """Returns the summed entropy of the leaves. Float `[B]`."""
        return _total([child.entropy() for child in self.flat_child_distributions])

    def kl(self, other: Any) -> Tensor:
        """Returns the summed divergence of the leaves. Float `[B]`."""
        pairs = zip(self.flat_child_distributions, other.flat_child_distributions, strict=True)
        return _total([mine.kl(theirs) for mine, theirs in pairs])

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:
        """Returns the summed width of the leaves' inputs."""
        del model_config
        return plan_dist(action_space).dim
