"""Configs made of good values pass the check unchanged, whatever is combined."""

import json
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rlframe.config.convert import kinds_of
from rlframe.config.declaration import Option, Section
from rlframe.config.merge import merge_configs
from rlframe.config.nested_dict import lookup, overlay
from tests.unit.config.declarations import ToyConfig

DEFAULTS = ToyConfig.defaults()


def leaf_keys(cls: type[Section], prefix: str = "") -> dict[str, tuple[Option, Any]]:
    found: dict[str, tuple[Option, Any]] = {}
    for key, declared in cls.options().items():
        found[prefix + key] = (declared, cls.annotations()[key])
        if declared.section is not None:
            found.update(leaf_keys(declared.section, f"{prefix}{key}."))
    return found


NUMBERS = {
    key: (declared, kinds_of(annotation))
    for key, (declared, annotation) in leaf_keys(ToyConfig).items()
    if {int, float} & set(kinds_of(annotation)) and key not in ToyConfig.unsupported and not declared.deprecated
    and list not in kinds_of(annotation)
}  # fmt: skip


@st.composite
def number_overrides(draw: st.DrawFn) -> dict[str, float]:
    """Good numbers for some of the numeric keys, by dotted key."""
    chosen = draw(st.lists(st.sampled_from(sorted(NUMBERS)), unique=True, max_size=6))
    result: dict[str, float] = {}
    for key in chosen:
        declared, kinds = NUMBERS[key]
        low = declared.low if declared.low is not None else declared.above if declared.above is not None else -10
        high = declared.high if declared.high is not None else low + 1e6
        if float in kinds:
            result[key] = draw(st.floats(low, high, exclude_min=declared.above is not None, allow_nan=False))
        else:
            result[key] = draw(st.integers(int(low), int(high)))
    return result


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in flat.items():
        *parents, last = key.split(".")
        target = result
        for part in parents:
            target = target.setdefault(part, {})
        target[last] = value
    return result


@given(number_overrides())
@settings(max_examples=60, deadline=None)
def test_good_numbers_are_kept_and_merging_twice_changes_nothing(flat: dict[str, float]) -> None:
    # evaluation_num_workers alone is remarked on; an interval goes with it.
    flat = {"evaluation_interval": 1, **flat}
    flat["evaluation_interval"] = max(1, int(flat["evaluation_interval"]))
    assume(flat.get("rollout_fragment_length") != 0)  # is for whole episodes
    once = merge_configs(DEFAULTS, nested(flat), ToyConfig)
    assert {key: lookup(once, key) for key in flat} == flat
    assert merge_configs(once, {}, ToyConfig) == once
    assert merge_configs(DEFAULTS, once, ToyConfig) == once
    ToyConfig.check(once)
    assert json.loads(json.dumps(once)) == once


@given(st.sets(st.sampled_from(sorted(DEFAULTS))))
@settings(max_examples=40, deadline=None)
def test_any_part_of_the_defaults_passes_the_check(keys: set[str]) -> None:
    part = {key: DEFAULTS[key] for key in keys}
    ToyConfig.check(part)
    assert merge_configs(DEFAULTS, part, ToyConfig) == DEFAULTS


leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3))
trees = st.recursive(leaves, lambda inner: st.dictionaries(st.sampled_from("abcd"), inner, max_size=3), max_leaves=8)
dicts = st.dictionaries(st.sampled_from("abcd"), trees, max_size=4)


@given(dicts, dicts, dicts)
@settings(deadline=None)
def test_overlay_laws_hold(one: dict[str, Any], two: dict[str, Any], three: dict[str, Any]) -> None:
    assert overlay(one, {}) == overlay({}, one) == overlay(one, one) == one
    merged = overlay(one, two)
    assert overlay(merged, two) == merged
    assert set(merged) == set(one) | set(two)
    assert overlay(overlay(one, two), {key: three[key] for key in three if not isinstance(three[key], dict)}) == {
        **merged, **{key: three[key] for key in three if not isinstance(three[key], dict)},
    }  # fmt: skip


@given(dicts)
@settings(deadline=None)
def test_free_form_section_comes_through_unchanged(free: dict[str, Any]) -> None:
    config = merge_configs(DEFAULTS, {"env_config": free, "model": {"custom_model_config": free}}, ToyConfig)
    assert config["env_config"] == free
    assert config["model"]["custom_model_config"] == free
