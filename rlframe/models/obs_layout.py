"""Where the leaves of a nested observation lie in the flat one, and how they are cut out of it again."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from rlframe.models.preprocessors import NoPreprocessor, get_preprocessor
from rlframe.models.repeated_values import RepeatedValues
from rlframe.tensor import ops


class _Leaf:
    """Where one leaf of an observation lies in the flat vector: `[start, stop)`, to be reshaped to `shape`.

    `integer` says whether its numbers are integers again: those of spaces that were not preprocessed.
    """

    def __init__(self, start: int, shape: tuple[int, ...], integer: bool = False) -> None:
        self.start, self.shape, self.integer = start, shape, integer
        self.stop = start + math.prod(shape)


class _Repeat:
    """Where a variable-length list lies: its length at `start`, then `max_len` children of `size` numbers each."""

    def __init__(self, start: int, max_len: int, size: int, child: Any) -> None:
        self.start, self.max_len, self.size, self.child = start, max_len, size, child
        self.stop = start + 1 + max_len * size


def obs_layout(obs_space: Any) -> Any:
    """Returns the places of the original space's leaves in the flat observation, or None where nothing was flattened.

    Args:
        obs_space: A preprocessed space; nested spaces are found in its attribute `original_space`. Or the nested space
            itself, which models of one's own may hand to their base class.
    """
    original = getattr(obs_space, "original_space", obs_space)
    if _kind(original) is None:
        return None
    layout, size = _layout(original, 0, raw=bool(getattr(obs_space, "raw_leaves", False)))
    if original is not obs_space and obs_space.shape is not None and math.prod(obs_space.shape) != size:
        raise ValueError(
            f"The flat observation space has {math.prod(obs_space.shape)} numbers, but its original space {original} "
            f"flattens to {size}; make it with the space's preprocessor."
        )
    return layout


def _kind(space: Any) -> str | None:
    """Returns "Dict", "Tuple" or "Repeated" for nested spaces of gymnasium, gym or our own, else None."""
    return next((base.__name__ for base in type(space).__mro__ if base.__name__ in {"Dict", "Tuple", "Repeated"}), None)


def _layout(space: Any, start: int, *, raw: bool = False) -> tuple[Any, int]:
    """Returns the layout of `space` from the offset `start` on, and the offset behind it; `raw`: not preprocessed."""
    kind = _kind(space)
    if kind == "Dict":
        nested: dict[str, Any] = {}
        for key, child in sorted(space.spaces.items()):
            nested[key], start = _layout(child, start, raw=raw)
        return nested, start
    if kind == "Tuple":
        items = []
        for child in space.spaces:
            item, start = _layout(child, start, raw=raw)
            items.append(item)
        return tuple(items), start
    if kind == "Repeated":
        inner, size = _layout(space.child_space, 0, raw=raw)
        repeat = _Repeat(start, space.max_len, size, inner)
        return repeat, repeat.stop
    maker = NoPreprocessor if raw else get_preprocessor(space)
    integer = raw and np.issubdtype(space.dtype, np.integer)
    leaf = _Leaf(start, tuple(int(n) for n in maker(space).shape), integer)
    return leaf, leaf.stop


def reshape_for(array: Any) -> Callable[[Any, tuple[Any, ...]], Any] | None:
    """Returns the function (array, shape) that reshapes arrays of this kind; None for what is no array."""
    if hasattr(array, "get_shape"):  # a TensorFlow tensor: it has no methods, and its sizes may be unknown
        from rlframe.models.tf.misc import reshape

        return reshape
    return _reshape_by_method if hasattr(array, "reshape") else None


def _reshape_by_method(array: Any, shape: tuple[Any, ...]) -> Any:
    return array.reshape(shape)


def unpack(flat: Any, layout: Any, reshape: Callable[[Any, tuple[Any, ...]], Any]) -> Any:
    """Cuts `flat [..., D]` (NumPy or a tensor) into views as `layout` says; None returns it unchanged."""
    if layout is None:
        return flat
    if isinstance(layout, dict):
        return {key: unpack(flat, child, reshape) for key, child in layout.items()}
    if isinstance(layout, tuple):
        return tuple(unpack(flat, child, reshape) for child in layout)
    leading = tuple(flat.shape[:-1])
    if isinstance(layout, _Repeat):
        rows = reshape(flat[..., layout.start + 1 : layout.stop], (*leading, layout.max_len, layout.size))
        values = unpack(rows, layout.child, reshape)
        return RepeatedValues(values, lengths=flat[..., layout.start], max_len=layout.max_len)
    leaf = reshape(flat[..., layout.start : layout.stop], (*leading, *layout.shape))
    return _as_integers(leaf) if layout.integer else leaf


def _as_integers(leaf: Any) -> Any:
    return leaf.astype(np.int64) if isinstance(leaf, np.ndarray) else ops.to_int(leaf)


def restore_original_dimensions(
    obs: Any,
    obs_space: Any,
    tensorlib: Any = None,  # noqa: ARG001 - programs pass it
    framework: Any = None,  # noqa: ARG001 - programs for RLlib 1.10 pass it
) -> Any:
    """Returns flat observations in the structure of the space they were flattened from.

    Discrete leaves stay one-hot, as the preprocessor made them.

    Args:
        obs: Flat observations, NumPy or a tensor. Float `[B, D]`.
        obs_space: The preprocessed space, with `original_space`, or the nested space; `obs` of others is returned as
            it is.
        tensorlib: Not needed, the kind of `obs` tells.
        framework: The same.

    Returns:
        Nested dicts and tuples of views with leaves `[B, ...]`.
    """
    reshape = reshape_for(obs)
    return obs if reshape is None else unpack(obs, obs_layout(obs_space), reshape)
