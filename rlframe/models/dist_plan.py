"""Which action distribution belongs to which action space; the same answer for every framework."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tree

from rlframe.utils.errors import UnsupportedSpaceException

#: Distance kept from the ends of an interval before taking logarithms.
SMALL = 1e-6
#: Limit of a normal variable before tanh: up to here an action can be turned back into the variable.
RAW_MAX = float(np.arctanh(1.0 - SMALL))
#: Limits of the log standard deviation of squashed normal variables.
LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0
#: Limit of a squashed normal variable's log-density in one dimension, before tanh: farther off, ratios would overflow.
LOG_DENSITY_MAX = 100.0
#: Limit of the logarithms of Dirichlet concentrations: draws are equal to the mean, in floats, long before it.
LOG_CONCENTRATION_MAX = 40.0

#: Model outputs for each number of an action in a Box, or component of a Simplex.
_BOX_TYPES = {
    "diag_gaussian": 2, "squashed_gaussian": 2, "beta": 2, "deterministic": 1, "tanh": 1,
    "dirichlet": 1, "relaxed_one_hot": 1,
}  # fmt: skip
_ALIASES = {"gaussian": "diag_gaussian"}


@dataclass(frozen=True)
class DistPlan:
    """The kind of a distribution, its width and its keyword arguments.

    Attributes:
        kind: "categorical", "multi_categorical", "diag_gaussian", …, "multi_action".
        dim: Model outputs it takes.
        options: Keyword arguments of the distribution's constructor.
        children: Plans of the leaves, for "multi_action".
    """

    kind: str
    dim: int
    options: dict[str, Any] = field(default_factory=dict)
    children: tuple[DistPlan, ...] = ()


def plan_dist(space: Any, dist_type: str | None = None) -> DistPlan:
    """Returns the distribution for an action space.

    Args:
        space: Discrete, MultiDiscrete, MultiBinary, Box, Simplex, or a Dict or Tuple of such.
        dist_type: None for the default; otherwise one of the kinds for continuous spaces, or "relaxed_one_hot" for a
            Discrete one or a Simplex. Leaves of nested spaces for which it makes no sense keep their default; so do
            spaces of choices asked for "deterministic", whose likeliest choice `deterministic_sample` gives.

    Raises:
        UnsupportedSpaceException: If there is no distribution for the space.
        ValueError: If `dist_type` is unknown.
    """
    kind = None if dist_type is None else _ALIASES.get(dist_type, dist_type)
    if kind is not None and kind not in _BOX_TYPES and kind not in ("categorical", "multi_categorical"):
        raise ValueError(f"Unknown dist_type {dist_type!r}; choose one of {sorted(_BOX_TYPES)}, or None.")
    # Spaces are told apart by their class's name, so that those of the old gym package count as well.
    names = {base.__name__ for base in type(space).__mro__}
    if names & {"Dict", "Tuple"}:
        return _plan_nested(space, kind)
    if kind == "deterministic" and names & {"Discrete", "MultiDiscrete", "MultiBinary"}:
        kind = None
    if "Discrete" in names:
        plan = DistPlan(kind or "categorical", int(space.n))
        return _default_unless(kind, {"categorical", "relaxed_one_hot"}, plan, space)
    if "MultiDiscrete" in names or "MultiBinary" in names:
        return _default_unless(kind, {"multi_categorical"}, _plan_choices(space), space)
    if "Simplex" in names:
        return _plan_box(space, kind or "dirichlet")
    if "Box" in names:
        integer = np.issubdtype(space.dtype, np.integer)
        return _plan_integer_box(space) if integer else _plan_box(space, kind or "diag_gaussian")
    raise UnsupportedSpaceException(
        f"No action distribution for the action space {space}; wanted Discrete, MultiDiscrete, MultiBinary, Box, or a "
        f"Dict or Tuple of these. Register your own with ModelCatalog.register_custom_action_dist."
    )


def is_gaussian(space: Any, model_config: Mapping[str, Any]) -> bool:
    """Returns whether actions are drawn from the built-in Gaussian: a float Box, no distribution of the user's own."""
    try:
        return not model_config.get("custom_action_dist") and plan_dist(space).kind == "diag_gaussian"
    except UnsupportedSpaceException:
        return False


def _default_unless(kind: str | None, allowed: set[str], plan: DistPlan, space: Any) -> DistPlan:
    if kind is None or kind in allowed:
        return plan
    wanted = "Discrete, or a Simplex" if kind == "relaxed_one_hot" else "a Box"
    raise UnsupportedSpaceException(
        f"A {kind!r} distribution cannot serve the action space {space}; it needs {wanted}."
    )


def _plan_choices(space: Any) -> DistPlan:
    """Returns the plan for MultiDiscrete and MultiBinary."""
    choices = np.asarray(space.nvec).reshape(-1) if hasattr(space, "nvec") else np.full(int(np.prod(space.shape)), 2)
    options = {"input_lens": tuple(int(n) for n in choices), "shape": tuple(space.shape), "dtype": space.dtype}
    return DistPlan("multi_categorical", int(choices.sum()), options)


def _plan_integer_box(space: Any) -> DistPlan:
    """Returns the plan for a Box of integers: one choice per component, counted from `low`."""
    choices = (space.high.astype(np.int64) - space.low.astype(np.int64) + 1).reshape(-1)
    if choices.max() > 2**16:
        raise UnsupportedSpaceException(
            f"The integer action space {space} has up to {int(choices.max())} values per component, and each needs a "
            f"model output; give it bounds, or use a float Box and round in the environment."
        )
    options = {"input_lens": tuple(int(n) for n in choices), "shape": tuple(space.shape), "dtype": space.dtype}
    return DistPlan("multi_categorical", int(choices.sum()), options)


def _plan_box(space: Any, kind: str) -> DistPlan:
    if kind not in _BOX_TYPES:
        raise UnsupportedSpaceException(f"A {kind!r} distribution cannot serve the action space {space}.")
    if 0 in space.shape:
        raise UnsupportedSpaceException(
            f"The action space {space} has shape {tuple(space.shape)}: it is empty; wanted an action to choose."
        )
    if kind == "tanh":
        return DistPlan(kind, int(np.prod(space.shape, dtype=np.int64)), {"shape": tuple(space.shape)})
    if len(space.shape) != 1:
        raise UnsupportedSpaceException(
            f"The action space {space} has shape {tuple(space.shape)}; a continuous action must be a vector. Reshape "
            f"it to ({int(np.prod(space.shape, dtype=np.int64))},) in the environment, or use a Tuple of vectors."
        )
    return DistPlan(kind, _BOX_TYPES[kind] * int(space.shape[0]))


def space_struct(space: Any) -> Any:
    """Returns the nested dict (sorted keys) or tuple of leaf spaces that a Dict or Tuple space stands for."""
    names = {base.__name__ for base in type(space).__mro__}
    if "Dict" in names:
        return {key: space_struct(child) for key, child in sorted(space.spaces.items())}
    if "Tuple" in names:
        return tuple(space_struct(child) for child in space.spaces)
    return space


def _vector(box: Any) -> Any:
    """Returns a Box of one number without dimension as one of a vector; others as they are."""
    return box if box.shape else type(box)(box.low.reshape(1), box.high.reshape(1), dtype=box.dtype)


def nested_options(space: Any) -> tuple[dict[str, Any], list[Any]]:
    """Returns `structure` and `leaf_shapes` of a distribution for a Dict or Tuple space, and the leaf spaces.

    Raises:
        UnsupportedSpaceException: If the space has no leaves.
    """
    # A leaf space may itself be a Mapping or Sequence to `tree`, hence the indices as a stand-in.
    leaves: list[Any] = []

    def index(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: index(child) for key, child in node.items()}
        if isinstance(node, tuple):
            return tuple(index(child) for child in node)
        leaves.append(node)
        return len(leaves) - 1

    structure = index(space_struct(space))
    if not leaves:
        raise UnsupportedSpaceException(f"The action space {space} is empty; wanted an action to choose.")
    # `tree` flattens dicts in sorted key order; so does `space_struct`.
    assert tree.flatten(structure) == list(range(len(leaves)))
    # One number is a vector of one here; `Policy.to_env_actions` hands it to the environment as a number again.
    shapes = [(1,) if _is_box(leaf) and not leaf.shape else tuple(leaf.shape) for leaf in leaves]
    return {"structure": structure, "leaf_shapes": shapes}, leaves


def _is_box(space: Any) -> bool:
    return "Box" in {base.__name__ for base in type(space).__mro__}


def _plan_nested(space: Any, kind: str | None) -> DistPlan:
    options, leaves = nested_options(space)
    children = tuple(plan_dist(_vector(leaf), kind) if _is_box(leaf) else plan_dist(leaf) for leaf in leaves)
    return DistPlan("multi_action", sum(child.dim for child in children), options, children)
