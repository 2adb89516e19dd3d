import numpy as np
import pytest
from gymnasium import spaces

from rlframe.models.dist_plan import plan_dist, space_struct
from rlframe.utils.errors import UnsupportedSpaceException
from rlframe.utils.spaces.simplex import Simplex


@pytest.mark.parametrize(
    ("space", "kind", "dim"),
    [
        (spaces.Discrete(5, start=3), "categorical", 5),
        (spaces.MultiDiscrete([2, 3]), "multi_categorical", 5),
        (spaces.MultiDiscrete([[2, 3], [4, 5]]), "multi_categorical", 14),
        (spaces.MultiBinary(3), "multi_categorical", 6),
        (spaces.Box(-1, 1, (3,)), "diag_gaussian", 6),
        (spaces.Box(0, 4, (2, 2), np.int32), "multi_categorical", 20),
        (spaces.Tuple([spaces.Discrete(2), spaces.Box(-1, 1, (3,))]), "multi_action", 8),
    ],
)
def test_plan_dist_default_kind_and_width(space, kind, dim):
    plan = plan_dist(space)
    assert (plan.kind, plan.dim) == (kind, dim)


@pytest.mark.parametrize(
    ("space", "kind", "dim"),
    [
        (spaces.Discrete(5), "categorical", 5),
        (spaces.MultiDiscrete([2, 3]), "multi_categorical", 5),
        (spaces.MultiBinary(3), "multi_categorical", 6),
        (spaces.Box(-1, 2, (2,), np.int64), "multi_categorical", 8),
    ],
)
def test_plan_dist_choices_asked_for_deterministic_actions_stay_choices(space, kind, dim):
    plan = plan_dist(space, "deterministic")
    assert (plan.kind, plan.dim) == (kind, dim)


@pytest.mark.parametrize(
    ("dist_type", "kind", "dim"),
    [("deterministic", "deterministic", 3), ("gaussian", "diag_gaussian", 6), ("beta", "beta", 6)],
)
def test_plan_dist_asked_kind_on_a_box(dist_type, kind, dim):
    plan = plan_dist(spaces.Box(-1, 1, (3,)), dist_type)
    assert (plan.kind, plan.dim) == (kind, dim)


@pytest.mark.parametrize(
    ("space", "kind", "dim"),
    [
        (spaces.Discrete(5, start=3), "relaxed_one_hot", 5),
        (Simplex((4,)), "relaxed_one_hot", 4),
        (spaces.Box(-1, 1, (2, 3)), "tanh", 6),
        (spaces.Box(-1, 1, ()), "tanh", 1),
    ],
)
def test_plan_dist_of_actors_with_gradients(space, kind, dim):
    plan = plan_dist(space, kind)
    assert (plan.kind, plan.dim) == (kind, dim)


@pytest.mark.parametrize(
    ("space", "kind", "wanted"),
    [
        (spaces.MultiDiscrete([2, 3]), "relaxed_one_hot", "Discrete, or a Simplex"),
        (spaces.Discrete(2), "tanh", "a Box"),
    ],
)
def test_plan_dist_refuses_kinds_that_cannot_serve_a_space(space, kind, wanted):
    with pytest.raises(UnsupportedSpaceException, match=f"'{kind}' distribution cannot serve .*; it needs {wanted}"):
        plan_dist(space, kind)


def test_plan_dist_nested_flattens_in_sorted_order():
    space = spaces.Dict(z=spaces.Discrete(2), a=spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 1, (4,))]))
    plan = plan_dist(space)
    assert [child.dim for child in plan.children] == [3, 8, 2]
    assert plan.options["structure"] == {"a": (0, 1), "z": 2}
    assert plan.options["leaf_shapes"] == [(), (4,), ()]


def test_plan_dist_nested_kind_applies_to_boxes_only():
    plan = plan_dist(spaces.Tuple([spaces.Discrete(2), spaces.Box(-1, 1, (3,))]), "deterministic")
    assert [child.kind for child in plan.children] == ["categorical", "deterministic"]


def test_plan_dist_old_gym_space_counts_by_name():
    class Discrete:
        n = 4

    assert plan_dist(Discrete()).dim == 4


def test_plan_dist_simplex_is_dirichlet():
    class Simplex:
        shape = (3,)

    assert (plan_dist(Simplex()).kind, plan_dist(Simplex()).dim) == ("dirichlet", 3)


@pytest.mark.parametrize(
    ("space", "dist_type", "message"),
    [
        (
            spaces.Box(-1, 1, (2, 3)),
            None,
            r"has shape \(2, 3\); a continuous action must be a vector. Reshape it to \(6,\)",
        ),
        (spaces.Text(3), None, "No action distribution for the action space Text"),
        (spaces.Discrete(3), "beta", "'beta' distribution cannot serve the action space Discrete"),
        (spaces.Box(-1, 1, (3,)), "categorical", "'categorical' distribution cannot serve"),
        (spaces.Box(0, 2**31 - 2, (1,), np.int32), None, "values per component"),
    ],
)
def test_plan_dist_unsupported_space_is_explained(space, dist_type, message):
    with pytest.raises(UnsupportedSpaceException, match=message):
        plan_dist(space, dist_type)


def test_plan_dist_unknown_type_is_refused():
    with pytest.raises(ValueError, match="Unknown dist_type 'cauchy'"):
        plan_dist(spaces.Box(-1, 1, (3,)), "cauchy")


def test_space_struct_of_a_leaf_is_the_leaf():
    leaf = spaces.Discrete(2)
    assert space_struct(leaf) is leaf
    assert space_struct(spaces.Dict(b=leaf, a=leaf)) == {"a": leaf, "b": leaf}
