from typing import Any

import numpy as np
import pytest

from rlframe.config.nested_dict import assign, copy_containers, lookup, overlay, restrict, same, type_name
from rlframe.utils.errors import ConfigError


def test_copy_containers_copies_dicts_and_lists_and_shares_leaves() -> None:
    leaf = object()
    original: dict[str, Any] = {"a": [{"b": leaf}], "t": ([1],), "s": {1}}
    copy = copy_containers(original)
    assert copy == original
    assert copy["a"][0]["b"] is leaf
    assert copy["a"] is not original["a"]
    assert copy["t"][0] is not original["t"][0]


def test_overlay_replaces_typed_section_only_when_type_changes() -> None:
    base = {"exploration_config": {"type": "A", "x": 1}}
    assert overlay(base, {"exploration_config": {"x": 2}}) == {"exploration_config": {"type": "A", "x": 2}}
    assert overlay(base, {"exploration_config": {"type": "A"}}) == base
    assert overlay(base, {"exploration_config": {"type": "B"}}) == {"exploration_config": {"type": "B"}}
    assert overlay(base, {"exploration_config": None}) == {"exploration_config": None}


def test_lookup_and_assign_follow_dotted_keys() -> None:
    values: dict[str, object] = {"a": {"b": 1}}
    assert lookup(values, "a.b") == 1
    assert lookup(values, "a.b.c", "none") == "none"
    assign(values, "a.c.d", 2)
    assign(values, "e", 3)
    assert values == {"a": {"b": 1, "c": {"d": 2}}, "e": 3}


def test_restrict_keeps_the_keys_of_the_other() -> None:
    assert restrict({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 9}}) == {"a": {"b": 1}}


def test_same_survives_arrays() -> None:
    assert not same(np.zeros(2), np.zeros(2))
    assert same([1], [1])


def test_type_name_shortens_own_classes_only() -> None:
    assert type_name(ConfigError) == "ConfigError"
    assert type_name(np.ndarray) is np.ndarray
    assert type_name("my.module.Class") == "my.module.Class"
    assert type_name("rlframe.exploration.soft_q.SoftQ") == "SoftQ"


@pytest.mark.parametrize("value", [None, "SoftQ", 3])
def test_type_name_leaves_other_values(value: object) -> None:
    assert type_name(value) == value
