"""Merging of dicts, and one-or-several."""

from __future__ import annotations

import pytest

import rlframe.utils
from rlframe.utils import deep_update, force_list, force_tuple, merge_dicts
from rlframe.utils.errors import ConfigError
from rlframe.utils.nested import add_mixins


def test_merge_dicts_is_deep_and_leaves_its_arguments_alone():
    one, two = {"a": {"x": 1, "l": [1]}, "b": 2}, {"a": {"y": 3}, "c": {"d": 4}}
    merged = merge_dicts(one, two)
    assert merged == {"a": {"x": 1, "l": [1], "y": 3}, "b": 2, "c": {"d": 4}}
    merged["a"]["l"].append(2)
    assert one == {"a": {"x": 1, "l": [1]}, "b": 2}
    assert two == {"a": {"y": 3}, "c": {"d": 4}}


def test_deep_update_refuses_new_keys_at_any_depth_and_changes_nothing():
    original = {"lr": 1, "model": {"fcnet_hiddens": [1]}}
    with pytest.raises(ConfigError, match="did you mean lr"):
        deep_update(original, {"model": {"fcnet_hiddens": [2]}, "lrr": 2})
    with pytest.raises(ConfigError, match=r"model.fcnet_hidden .*did you mean model.fcnet_hiddens"):
        deep_update(original, {"lr": 2, "model": {"fcnet_hidden": [2]}})
    assert original == {"lr": 1, "model": {"fcnet_hiddens": [1]}}


def test_deep_update_allows_new_keys_below_listed_ones():
    original = {"env_config": {}, "lr": 1}
    assert deep_update(original, {"env_config": {"size": {"x": 3}}}, False, ["env_config"]) is original
    assert original == {"env_config": {"size": {"x": 3}}, "lr": 1}


def test_deep_update_replaces_a_dict_whose_type_changes():
    def fresh():
        return {"exploration_config": {"type": "EpsilonGreedy", "final_epsilon": 0.1}}

    options = {"override_all_if_type_changes": ["exploration_config"]}
    changed = deep_update(fresh(), {"exploration_config": {"type": "SoftQ", "temperature": 2}}, **options)
    assert changed["exploration_config"] == {"type": "SoftQ", "temperature": 2}
    same = deep_update(fresh(), {"exploration_config": {"type": "EpsilonGreedy"}}, **options)
    assert same["exploration_config"] == {"type": "EpsilonGreedy", "final_epsilon": 0.1}


@pytest.mark.parametrize(("given", "wanted"), [(None, []), (1, [1]), ((1, 2), [1, 2]), ([3], [3]), ("ab", ["ab"])])
def test_force_list_makes_lists(given, wanted):
    assert force_list(given) == wanted
    assert force_list(given, to_tuple=True) == tuple(wanted)
    assert force_tuple(given) == tuple(wanted)


def test_add_mixins_puts_them_first():
    class Base:
        def name(self):
            return "base"

    class Mixin:
        def name(self):
            return "mixin"

    assert add_mixins(Base, [Mixin])().name() == "mixin"
    assert add_mixins(Base, [Mixin], reversed=True)().name() == "base"
    assert add_mixins(Base, None) is Base


@pytest.mark.parametrize("name", rlframe.utils.__all__)
def test_every_lazy_name_of_utils_resolves(name):
    assert getattr(rlframe.utils, name) is not None


def test_an_unknown_name_of_utils_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        rlframe.utils.no_such_name  # noqa: B018


def test_submodules_of_utils_are_not_hidden_by_names():
    from rlframe.utils import annotations, numpy, typing

    assert annotations.__name__ == "rlframe.utils.annotations"
    assert numpy.__name__ == "rlframe.utils.numpy"
    assert typing.__name__ == "rlframe.utils.typing"
