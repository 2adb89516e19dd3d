"""from_config: names, paths, classes, and what goes wrong with them."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from rlframe.utils.errors import ConfigError
from rlframe.utils.from_config import accepted_arguments, from_config, known_types
from rlframe.utils.schedules import ConstantSchedule, Schedule


class Shape:
    """Base of a small family."""

    __type_registry__: ClassVar[dict[str, Any]] = {}

    def __init__(self, size=1):
        self.size = size


class Square(Shape):
    """Hands its options on."""

    def __init__(self, corner="sharp", **kwargs):
        super().__init__(**kwargs)
        self.corner = corner


Shape.__type_registry__["square"] = Square


@pytest.mark.parametrize(
    "config",
    [
        {"type": "square", "size": 3},
        {"type": Square, "size": 3},
        {"type": f"{__name__}.Square", "size": 3},
        {"type": f"{__name__}:Square", "size": 3},
        {"type": lambda **kwargs: Square(**kwargs), "size": 3},
    ],
)
def test_from_config_finds_types_in_every_spelling(config):
    made = from_config(Shape, config, corner="round")
    assert isinstance(made, Square)
    assert (made.size, made.corner) == (3, "round")
    assert "type" in config, "the dict is the user's"


def test_from_config_of_an_object_gives_it_back():
    shape = Square()
    assert from_config(Shape, shape) is shape


def test_from_config_without_a_type_makes_the_base_class():
    assert type(from_config(Shape, {"size": 4})) is Shape
    assert from_config(Shape, None, size=2).size == 2


@pytest.mark.parametrize("config", [None, {}])
def test_from_config_of_an_abstract_base_class_is_none(config):
    assert from_config(Schedule, config, framework="torch") is None


def test_from_config_of_an_unknown_name_names_the_nearest():
    with pytest.raises(ConfigError, match="did you mean PiecewiseSchedule"):
        from_config(Schedule, "PieceWiseSchedul")
    with pytest.raises(ConfigError, match="known are square"):
        from_config(Shape, "zzz")


@pytest.mark.parametrize("path", ["no.such.module.Square", f"{__name__}.Missing", 5])
def test_from_config_of_a_wrong_path_is_a_config_error(path):
    with pytest.raises(ConfigError):
        from_config(Shape, {"type": path})


def test_from_config_of_an_unknown_option_names_the_nearest():
    with pytest.raises(ConfigError, match=r"Square has no option 'siz'.*'size'"):
        from_config(Shape, {"type": "square", "siz": 3})


class Filtering(Square):
    """Leaves out what other shapes take, as where one algorithm's parts are made by the config of another."""

    def __init__(self, **kwargs):
        kwargs = {name: value for name, value in kwargs.items() if name != "radius"}
        super().__init__(**kwargs)


class Popping(Square):
    def __init__(self, corner=0, **kwargs):
        self.radius = kwargs.pop("radius", None)
        super().__init__(corner=corner, **kwargs)


@pytest.mark.parametrize("maker", [Filtering, Popping])
def test_from_config_leaves_options_to_a_constructor_that_sorts_them_itself(maker):
    made = from_config(Shape, {"type": maker, "size": 3, "radius": 2})
    assert made.size == 3
    with pytest.raises(TypeError, match="siz"):
        from_config(Shape, {"type": maker, "siz": 3})


def test_from_config_that_makes_something_else_is_refused():
    with pytest.raises(ConfigError, match="wanted a Shape"):
        from_config(Shape, {"type": ConstantSchedule, "value": 3})


def test_accepted_arguments_follow_keyword_arguments_to_the_bases():
    assert accepted_arguments(Square) == {"corner", "size"}
    assert accepted_arguments(Shape) == {"size"}
    assert accepted_arguments(lambda a, *, b: None) == {"a", "b"}
    assert accepted_arguments(lambda **anything: None) is None


def test_known_types_are_the_public_subclasses():
    assert known_types(Shape) == ["square"]
    assert "PiecewiseSchedule" in known_types(Schedule)
    assert "Schedule" not in known_types(Schedule)


def test_from_config_of_a_path_alone_makes_any_class():
    made = from_config("rlframe.utils.schedules.ConstantSchedule", {"value": 3.0, "framework": None})
    assert made.value(1) == 3.0
    assert from_config({"type": Square, "size": 2}).size == from_config({"type": f"{__name__}.Square"}, size=2).size
    with pytest.raises(ConfigError, match="no_such"):
        from_config("no_such.module.Class", {})


def test_from_config_takes_functions_and_arguments_by_place_as_rllibs_does():
    assert from_config(Shape, {"type": Shape, "_args": [4]}).size == 4
    assert from_config({"type": Square, "_args": "round", "size": 2}).corner == "round"
    assert from_config(lambda size: Shape(size), {"size": 3}).size == 3
    assert from_config(None, {"type": Square}, size=5).size == 5
