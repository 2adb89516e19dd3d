"""How a config is declared: `option`, `section`, and the classes `Section` and `AlgorithmConfig`.

A declaration is a frozen pydantic model whose fields carry everything known about a key: type, default, bounds,
unit, meaning, source. Defaults, checks, messages and the reference page all come from it.
"""

import collections.abc
import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import Self

from rlframe.config.convert import LARGEST_COUNT, kinds_of
from rlframe.config.nested_dict import copy_containers, overlay
from rlframe.config.view import ConfigView, declare_attribute

SectionT = TypeVar("SectionT", bound="Section")
Rule = Callable[[Any], "str | None"]
"""Returns None for a good value, else what is wanted instead."""


@dataclass(frozen=True)
class Variants:
    """The declared forms of a section, chosen by the value of its `type`.

    A class or a dotted path that is not declared here makes the section free-form: its keys are the user's.
    """

    sections: dict[str, "type[Section]"] = field(default_factory=dict)

    def add(self, name: str) -> "Callable[[type[SectionT]], type[SectionT]]":
        """Returns a class decorator that declares the form called `name`."""

        def register(cls: "type[SectionT]") -> "type[SectionT]":
            self.sections[name] = cls
            return cls

        return register


class UnsupportedValue(NamedTuple):
    """Values of a declared key that this version does not honour.

    Attributes:
        refuses: Whether a value is refused. Never true of the default.
        sentence: Why, and what to use instead.
        harmless: Whether the run is the same without the value: a warning will do.
        read_by_own_code: Whether a plan or policy of the program's own may read it: nothing is said then.
    """

    refuses: Callable[[Any], bool]
    sentence: str
    harmless: bool = False
    read_by_own_code: bool = False


@dataclass(frozen=True)
class Option:
    """Everything declared about one key, but for its name and type. See `option` for the fields."""

    default: Any
    description: str
    unit: str | None = None
    low: float | None = None
    high: float | None = None
    above: float | None = None
    choices: tuple[Any, ...] | None = None
    source: str | None = None
    rule: Rule | None = None
    wanted: str | None = None
    section: "type[Section] | None" = None
    variants: Variants | None = None
    overrides: bool = False
    deprecated: bool = False
    alias: str | None = None
    log: bool | None = None
    tunable: bool | None = None
    infinite: bool = False

    def fresh_default(self) -> Any:
        """Returns the default value, shared with nobody."""
        if self.section is not None:
            return overlay(self.section.defaults(), self.default)
        return copy_containers(self.default)

    def value_fault(self, value: Any) -> bool:
        """Whether a value of the right type is out of bounds or none of the choices. Lists: any item of them."""
        if isinstance(value, list | tuple):
            return any(self.value_fault(item) for item in value)
        if isinstance(value, str):
            return self.choices is not None and value not in self.choices
        if isinstance(value, int | float) and not isinstance(value, bool):
            return not self._within(value)
        return False

    def _within(self, value: float) -> bool:
        """Whether a number is within the bounds, and finite unless infinity is declared as "no limit".

        Integers are those that arrays and counters hold.
        """
        return (
            value == value
            and not (isinstance(value, int) and abs(value) > LARGEST_COUNT)
            and (self.infinite or abs(value) != float("inf"))
            and (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
            and (self.above is None or value > self.above)
        )


def option(  # noqa: PLR0913  every keyword is one column of the reference page
    default: Any,
    description: str,
    *,
    unit: str | None = None,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    choices: Collection[Any] | None = None,
    source: str | None = None,
    key: str | None = None,
    rule: Rule | None = None,
    wanted: str | None = None,
    variants: Variants | None = None,
    overrides: bool = False,
    deprecated: bool = False,
    alias: str | None = None,
    log: bool | None = None,
    tunable: bool | None = None,
    infinite: bool = False,
) -> Any:
    """Declares one key of a section.

    A subclass that declares a key again need not repeat `alias`, `log` and `tunable`: see `Section.trait`.

    Args:
        default: The default value; mutable ones are copied for every config.
        description: What the key means, one sentence.
        unit: Unit of the value, for example "env steps" or "s".
        low: Smallest value allowed; for lists, of each item.
        high: Largest value allowed; for lists, of each item.
        above: The value must be larger than this.
        choices: The strings allowed; other types of the annotation stay allowed.
        source: Paper or book, with the equation.
        key: The key in the config where it cannot be a field's name: "lambda", or one that begins with "_".
        rule: Finds what types and bounds cannot: returns None, or what is wanted instead.
        wanted: Words for the wanted type, where those made from the annotation would not help.
        variants: The declared forms of a dict that has a `type`.
        overrides: The dict holds overrides of the whole config, and is checked as such.
        deprecated: The key is only understood, and answered with its new name.
        alias: A second name of its flag on the command line.
        log: Whether a search goes by orders of magnitude: learning rates, weights.
        tunable: Whether a search may vary it; None goes by its type. False for keys that say how a run is carried
            out, or what is solved.
        infinite: Whether infinity is a value: of limits, it sets none.
    """
    declared = Option(
        default, description, unit, low, high, above, tuple(choices) if choices is not None else None, source, rule,
        wanted, None, variants, overrides, deprecated, alias, log, tunable, infinite,
    )  # fmt: skip
    return _field(declared, key)


def section(cls: "type[Section]", description: str, *, key: str | None = None, **new_defaults: Any) -> Any:
    """Declares a key that holds a section of its own.

    Args:
        cls: Declaration of the section.
        description: What the section is about, one sentence.
        key: The key in the config where it cannot be a field's name.
        **new_defaults: Defaults that differ from those of `cls`.
    """
    return _field(Option(new_defaults, description, section=cls, wanted="a dict"), key)


class Section(BaseModel, Mapping[str, Any]):
    """A frozen declaration of the keys of one dict. Instances are typed views of a checked config, and mappings."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", arbitrary_types_allowed=True, protected_namespaces=()
    )

    new_defaults: ClassVar[Mapping[str, Any]] = {}
    """Defaults of inherited keys that differ from the parent's, as a nested dict."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Makes the keys attributes of configs, and refuses changed defaults of keys that do not exist."""
        super().__pydantic_init_subclass__(**kwargs)
        for name, info in cls.model_fields.items():
            declare_attribute(name, _key(name, info))
        unknown = set(cls.new_defaults) - set(cls.options())
        if unknown:
            raise TypeError(f"{cls.__name__}.new_defaults changes undeclared keys {sorted(unknown)}")

    def __getitem__(self, key: str) -> Any:
        return getattr(self, _names(type(self))[key])

    def __iter__(self) -> Iterator[str]:  # type: ignore[override]  # pydantic's gives pairs
        return iter(_names(type(self)))

    def __len__(self) -> int:
        return len(_names(type(self)))

    @classmethod
    def view(cls, config: Mapping[str, Any]) -> Self:
        """Returns a config as plans and workers read it: complete, read-only, a dict with the declared attributes.

        Args:
            config: A whole config or a part of it, not changed; missing keys have their defaults, others are kept. A
                view is returned as it is.
        """
        if not isinstance(config, ConfigView):
            defaults = cls.defaults()
            values = {key: cls._viewed(key, value, defaults.get(key)) for key, value in {**defaults, **config}.items()}
            config = ConfigView(values)
        return cast(Self, config)

    @classmethod
    def _viewed(cls, key: str, value: Any, default: Any) -> Any:
        declared = cls.options().get(key)
        if declared is None or declared.section is None or not isinstance(value, Mapping):
            return copy_containers(value)
        return declared.section.view({**default, **value})

    @classmethod
    def takes_own_keys(cls, values: Mapping[str, Any]) -> bool:
        """Returns whether undeclared keys beside these values are the user's own, read by a class of theirs."""
        del values
        return False

    @classmethod
    def left_to_own_class(cls, values: Mapping[str, Any]) -> Collection[str]:
        """Returns the declared keys that only a class of the user's own reads, and may find anything in."""
        del values
        return ()

    @classmethod
    def options(cls) -> Mapping[str, Option]:
        """Returns the declared keys, as they are spelled in a config, in the order of declaration."""
        return _options(cls)

    @classmethod
    def annotations(cls) -> Mapping[str, Any]:
        """Returns the declared type of every key."""
        return _annotations(cls)

    @classmethod
    def trait(cls, key: str, name: str) -> Any:
        """Returns `alias`, `log` or `tunable` of a key, from the nearest class that declares it; None if none does."""
        for parent in cls.__mro__:
            if issubclass(parent, Section) and key in parent.options():
                value = getattr(parent.options()[key], name)
                if value is not None:
                    return value
        return None

    @classmethod
    def aliases(cls) -> dict[str, str]:
        """Returns the keys that have a second name on the command line, by that name."""
        found = ((cls.trait(key, "alias"), key) for key in cls.options())
        return {alias: key for alias, key in found if alias is not None}

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Returns the defaults as a fresh plain dict; nothing in it is shared with another call."""
        return cast("dict[str, Any]", copy_containers(_defaults(cls)))

    @classmethod
    def own_options(cls) -> Mapping[str, Option]:
        """Returns the keys that the class itself declares, or declares again."""
        return _own_options(cls)

    @classmethod
    def known_keys(cls) -> set[str]:
        """Returns all declared keys with dotted names, those of every form of a typed section included."""
        return set(_dotted_keys(cls, seen=()))

    @classmethod
    def deprecated_keys(cls) -> set[str]:
        """Returns the declared keys, with dotted names, that are only understood and answered with their new names."""
        found = set()
        for key, declared in cls.options().items():
            if declared.deprecated:
                found.add(key)
            if declared.section is not None:
                found |= {f"{key}.{below}" for below in declared.section.deprecated_keys()}
        return found

    def faults(self) -> Iterator[str]:
        """Yields a sentence for every fault between keys; never changes a value."""
        yield from ()

    def remarks(self) -> Iterator[str]:
        """Yields a sentence for everything that is allowed but hardly meant; shown as warnings."""
        yield from ()


@functools.cache
def _options(cls: type[Section]) -> Mapping[str, Option]:
    """Returns what `Section.options` returns; made once for each class."""
    fields = cls.model_fields.items()
    return {_key(name, info): cast("dict[str, Option]", info.json_schema_extra)["option"] for name, info in fields}


@functools.cache
def _names(cls: type[Section]) -> Mapping[str, str]:
    """Returns the names of fields by the keys that they declare; made once for each class."""
    return {_key(name, info): name for name, info in cls.model_fields.items()}


@functools.cache
def _own_options(cls: type[Section]) -> Mapping[str, Option]:
    """Returns what `Section.own_options` returns; made once for each class."""
    inherited = [base.options() for base in cls.__bases__ if issubclass(base, Section)]
    return {
        key: declared
        for key, declared in cls.options().items()
        if all(options.get(key) is not declared for options in inherited)
    }


@functools.cache
def _defaults(cls: type[Section]) -> Mapping[str, Any]:
    """Returns what `Section.defaults` returns a copy of; made once for each class."""
    values: dict[str, Any] = {}
    for parent in reversed([ancestor for ancestor in cls.__mro__ if issubclass(ancestor, Section)]):
        values |= {key: declared.fresh_default() for key, declared in parent.own_options().items()}
        if "new_defaults" in parent.__dict__:
            values = overlay(values, parent.__dict__["new_defaults"])
    return values


@functools.cache
def _annotations(cls: type[Section]) -> Mapping[str, Any]:
    """Returns what `Section.annotations` returns; made once for each class."""
    return {_key(name, info): info.annotation for name, info in cls.model_fields.items()}


def wanted_text(annotation: Any, declared: Option) -> str:
    """Returns in words what a key takes: type, bounds, choices and unit."""
    if declared.wanted is not None:
        return declared.wanted
    kinds = kinds_of(annotation)
    numbers = [kind for kind in (float, int) if kind in kinds][:1]  # where both are taken, "a number" says it
    words = [f"{_KIND_NAMES[kind]}{_bounds_text(declared)}" for kind in numbers]
    words += [_kind_text(kind, declared) for kind in kinds if kind not in (int, float)]
    text = " or ".join(words)
    return f"{text} ({declared.unit})" if declared.unit else text


_KIND_NAMES: dict[Any, str] = {
    int: "an integer", float: "a number", bool: "True or False", str: "a string", dict: "a dict", list: "a list",
    type(None): "None", Any: "any value", collections.abc.Callable: "a callable",
}  # fmt: skip
_PLURALS: dict[Any, str] = {
    int: "integers",
    float: "numbers",
    str: "strings",
    list: "lists",
    collections.abc.Sequence: "lists",
}


def _kind_text(kind: Any, declared: Option) -> str:
    """Returns one member of a union in words."""
    if kind is str and declared.choices is not None:
        return f"one of {', '.join(repr(choice) for choice in declared.choices)}"
    origin = get_origin(kind)
    if origin is Literal:
        return " or ".join(repr(choice) for choice in get_args(kind))
    if origin in (list, collections.abc.Sequence):
        items = kinds_of(get_args(kind)[0])
        plural = " or ".join(_PLURALS.get(get_origin(item) or item, "values") for item in items)
        return f"a list of {plural}{_bounds_text(declared)}"
    return _KIND_NAMES.get(origin or kind) or f"a {getattr(kind, '__name__', kind)}"


def _bounds_text(declared: Option) -> str:
    """Returns the bounds as text that follows a noun, for example " >= 1"."""
    if declared.low is not None and declared.high is not None:
        return f" in [{declared.low}, {declared.high}]"
    bounds = ((">", declared.above), (">=", declared.low), ("<=", declared.high))
    return " and".join(f" {sign} {bound}" for sign, bound in bounds if bound is not None)


def _field(declared: Option, key: str | None) -> Any:
    """Returns the pydantic field that carries a declaration. It is required: defaults are filled in by `defaults`."""
    extra = cast("dict[str, Any]", {"option": declared})
    return Field(alias=key, description=declared.description, json_schema_extra=extra)


def _key(name: str, info: Any) -> str:
    """Returns how a field is spelled in a config."""
    return cast(str, info.alias or name)


def _dotted_keys(cls: type[Section], seen: tuple[type[Section], ...]) -> Iterator[str]:
    """Yields the dotted keys of a section; a form that contains itself is entered once."""
    for key, declared in cls.options().items():
        yield key
        forms = [declared.section] if declared.section else []
        forms += list(declared.variants.sections.values()) if declared.variants else []
        for form in forms:
            if form not in seen:
                yield from (f"{key}.{below}" for below in _dotted_keys(form, (*seen, *forms)))
