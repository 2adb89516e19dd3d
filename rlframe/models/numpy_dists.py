"""Which NumPy distribution acts in an action space."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from rlframe.models.bounded_distributions import Beta, Deterministic, Dirichlet, RelaxedOneHot, Tanh
from rlframe.models.compound_distributions import MultiActionDistribution, MultiCategorical
from rlframe.models.dist_plan import DistPlan, plan_dist
from rlframe.models.distributions import Categorical, NumpyDistClass
from rlframe.models.gaussian import DiagGaussian, SquashedGaussian

_CLASSES: dict[str, Any] = {
    "categorical": Categorical,
    "multi_categorical": MultiCategorical,
    "diag_gaussian": DiagGaussian,
    "squashed_gaussian": SquashedGaussian,
    "beta": Beta,
    "dirichlet": Dirichlet,
    "deterministic": Deterministic,
    "tanh": Tanh,
    "relaxed_one_hot": RelaxedOneHot,
    "multi_action": MultiActionDistribution,
}


def dist_from_plan(plan: DistPlan, classes: Mapping[str, Any]) -> Any:
    """Returns the class that `plan` names in `classes`, with its keyword arguments bound where it has any."""
    options = dict(plan.options)
    if plan.children:
        options["child_distributions"] = [dist_from_plan(child, classes) for child in plan.children]
        options["input_lens"] = [child.dim for child in plan.children]
    return partial(classes[plan.kind], **options) if options else classes[plan.kind]


def numpy_dist_for(space: Any, dist_type: str | None = None) -> tuple[NumpyDistClass, int]:
    """Returns the NumPy distribution for an action space, and how many model outputs it takes.

    Args:
        space: Action space.
        dist_type: None for the space's default, or "deterministic", "squashed_gaussian", "beta", "dirichlet", ….

    Returns:
        A class or partial called as `dist(inputs[B, K], rng)`, and K.

    Raises:
        UnsupportedSpaceException: If there is no distribution for the space.
        ValueError: If `dist_type` is unknown.
    """
    plan = plan_dist(space, dist_type)
    return dist_from_plan(plan, _CLASSES), plan.dim
