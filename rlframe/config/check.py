"""The inspection of a config against its declaration: finds every fault, and converts what may be converted."""

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from rlframe.config.convert import convert, kinds_of, spells_number
from rlframe.config.declaration import Option, Section, Variants, wanted_text
from rlframe.config.faults import Fault, did_you_mean, got, is_slip, near_choice, nearest_keys, unknown_key
from rlframe.config.nested_dict import TYPED_SECTIONS, assign, lookup, overlay, restrict, type_name


@dataclass(frozen=True)
class Tolerance:
    """What is allowed beyond the declaration.

    Attributes:
        extra_keys: Top-level keys of the user's own.
        allow_unknown: Whether any top-level key is allowed.
        open_sections: Top-level sections in which any key is allowed.
        typed_sections: Sections of which overrides with another `type` replace the whole.
        own_code: Whether the program has a plan or a policy of its own, which may read what built-in ones do not.
    """

    extra_keys: frozenset[str] = frozenset()
    allow_unknown: bool = False
    open_sections: frozenset[str] = frozenset()
    typed_sections: tuple[str, ...] = TYPED_SECTIONS
    own_code: bool = False

    def allows(self, dotted: str) -> bool:
        """Whether an undeclared key is allowed."""
        top, _, below = dotted.partition(".")
        if below:
            return top in self.open_sections
        return self.allow_unknown or top in self.extra_keys


class Inspector:
    """Goes through a config once and keeps what it finds.

    Attributes:
        config: The config with its values converted; undeclared keys are kept.
        view: The typed view, with the defaults in place of faulty values.
        faults: What is wrong.
        faulty: Dotted keys of which the value is wrong.
        remarks: What is allowed but hardly meant.
    """

    def __init__(self, declaration: type[Section], tolerance: Tolerance) -> None:
        """Prepares the inspection of configs of one declaration."""
        self._declaration = declaration
        self._tolerance = tolerance
        self.config: dict[str, Any] = {}
        self.view: Section | None = None
        self.faults: list[Fault] = []
        self.faulty: set[str] = set()
        self.remarks: list[str] = []

    def inspect(self, config: Mapping[str, Any]) -> None:
        """Inspects a config; missing keys have their defaults."""
        self.config, self.view = self._inspect(self._declaration, config, "")

    def inspect_overrides(self, config: Mapping[str, Any], key: str) -> None:
        """Inspects a config as it is with the overrides it holds at `key` laid on it."""
        base = _without(config, key)
        merged = overlay(base, _without(config[key], key), self._tolerance.typed_sections)
        self.inspect({**merged, key: {}})

    def adopt_overrides(self, key: str, inner: "Inspector") -> None:
        """Takes over the converted values of overrides that `inner` inspected."""
        self.config[key] = restrict(inner.config, _without(self.config[key], key))

    def _inspect(self, cls: type[Section], values: Mapping[str, Any], prefix: str) -> tuple[dict[str, Any], Section]:
        """Returns the converted values of a section and its typed view, and notes the faults of both."""
        converted = self._convert(cls, values, prefix)
        defaults = cls.defaults()
        complete = _complete(cls, converted, defaults)
        bad, view = self._note_type_faults(cls, complete, prefix)
        self._note_value_faults(cls, complete, prefix, bad)
        if bad or view is None:
            for dotted in bad:
                assign(complete, dotted, lookup(defaults, dotted))
            view = cls.model_validate(complete)
        self._note_sentences(view, prefix, bad)
        return converted, view

    def _convert(self, cls: type[Section], values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
        """Returns the values in their declared form, section by section, and notes unknown keys."""
        options, annotations = cls.options(), cls.annotations()
        converted = {}
        for key, value in values.items():
            declared = options.get(key)
            if declared is None:
                self._note_unknown(cls, str(key), prefix, own_key=cls.takes_own_keys(values))
                converted[key] = value
            elif declared.section is not None and isinstance(value, dict):
                converted[key] = self._convert(declared.section, value, f"{prefix}{key}.")
            elif declared.variants is not None and isinstance(value, dict):
                converted[key] = self._inspect_variant(declared.variants, value, f"{prefix}{key}")
            else:
                converted[key] = convert(value, annotations[key])
        return converted

    def _inspect_variant(self, variants: Variants, values: dict[str, Any], dotted: str) -> dict[str, Any]:
        """Returns the converted values of a section whose keys depend on its `type`; free-form ones unchanged."""
        kind = type_name(values.get("type"))
        form = variants.sections.get(kind) if isinstance(kind, str) else None
        if form is not None:
            named = {**values, "type": kind} if isinstance(values["type"], str) else values
            return self._inspect(form, named, f"{dotted}.")[0]
        if not callable(kind) and not (isinstance(kind, str) and "." in kind):
            names = sorted(variants.sections)
            wanted = f"wanted one of {', '.join(map(repr, names))}, a class or the dotted path of one"
            self._note(Fault(f"{dotted}.type", f"{got(kind)}, {wanted}{near_choice(kind, names)}"))
        return values

    def _note(self, fault: Fault) -> None:
        """Keeps a fault, and that its key is faulty."""
        self.faults.append(fault)
        self.faulty.add(fault.key)

    def _note_unknown(self, cls: type[Section], key: str, prefix: str, *, own_key: bool) -> None:
        """Keeps the fault of an undeclared key, unless it is allowed; a remark on one for the user's own code."""
        if self._tolerance.allows(prefix + key):
            return
        siblings = {prefix + sibling for sibling in cls.options()}
        if own_key:
            if is_slip(prefix + key, siblings):
                near = did_you_mean(nearest_keys(prefix + key, siblings))
                self.remarks.append(f"{prefix}{key}: unknown key, handed to your own class as it is{near}")
            return
        known = self._declaration.known_keys() | {prefix + sibling for sibling in cls.known_keys()}
        self._note(unknown_key(key, prefix, known, siblings=siblings))

    def _note_type_faults(
        self, cls: type[Section], complete: dict[str, Any], prefix: str
    ) -> tuple[set[str], Section | None]:
        """Keeps a fault for every value that has not its declared type.

        Returns:
            Their keys within the section, and the typed view where there are none.
        """
        try:
            view = cls.model_validate(complete)
        except ValidationError as error:
            bad = {_declared_key(cls, entry["loc"]) for entry in error.errors(include_url=False)}
        else:
            return set(), view
        left = _left_to_own_classes(cls, complete)
        for dotted, declared, annotation in _leaves(cls):
            if dotted in bad and dotted not in left:
                value = lookup(complete, dotted)
                text = f"{got(value)}, wanted {wanted_text(annotation, declared)}{_hint(value, annotation)}"
                self._note(Fault(prefix + dotted, text))
        return bad, None

    def _note_value_faults(self, cls: type[Section], complete: dict[str, Any], prefix: str, bad: set[str]) -> None:
        """Keeps a fault for every value of the right type that is out of bounds or breaks its rule; adds to `bad`."""
        for dotted, declared, annotation in _leaves(cls):
            if bad and any(dotted == key or dotted.startswith(f"{key}.") for key in bad):
                continue
            value = lookup(complete, dotted)
            wanted = wanted_text(annotation, declared) if declared.value_fault(value) else None
            if wanted is None and declared.rule is not None:
                wanted = declared.rule(value)
            if wanted is not None:
                bad.add(dotted)
            if wanted is not None and dotted not in _left_to_own_classes(cls, complete):
                near = near_choice(value, declared.choices or ())
                self._note(Fault(prefix + dotted, f"{got(value)}, wanted {wanted}{near}"))

    def _note_sentences(self, view: Section, prefix: str, bad: set[str]) -> None:
        """Keeps the faults and remarks between keys, but for those about a value that is faulty by itself."""
        names = {dotted.rsplit(".", 1)[-1] for dotted in bad}
        for section_prefix, part in _sections(view, prefix):
            for sentence in part.faults():
                if not any(re.search(rf"\b{re.escape(name)}\b", sentence) for name in names):
                    self.faults.append(Fault("", f"{section_prefix}{sentence}"))
            self.remarks += [f"{section_prefix}{sentence}" for sentence in part.remarks()]


def _without(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Returns the values without one key. Overrides that were copied from a whole config hold overrides themselves."""
    return {other: value for other, value in values.items() if other != key}


def _complete(cls: type[Section], values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the declared keys only, with the defaults where `values` has none."""
    complete = {}
    for key, declared in cls.options().items():
        value = values.get(key, defaults[key])
        if declared.section is not None and isinstance(value, dict):
            value = _complete(declared.section, value, defaults[key])
        complete[key] = value
    return complete


def _left_to_own_classes(cls: type[Section], values: Mapping[str, Any]) -> set[str]:
    """Returns the dotted keys whose values are read by classes of the user's own alone."""
    left = set(cls.left_to_own_class(values))
    for key, declared in cls.options().items():
        if declared.section is not None and isinstance(values[key], dict):
            left |= {f"{key}.{below}" for below in _left_to_own_classes(declared.section, values[key])}
    return left


@functools.cache
def _leaves(cls: type[Section]) -> Sequence[tuple[str, Option, Any]]:
    """Returns dotted key, declaration and type of every key; a section comes before its own keys."""
    annotations = cls.annotations()
    leaves: list[tuple[str, Option, Any]] = []
    for key, declared in cls.options().items():
        leaves.append((key, declared, annotations[key]))
        if declared.section is not None:
            inner = _leaves(declared.section)
            leaves += [(f"{key}.{below}", option, annotation) for below, option, annotation in inner]
    return leaves


def _sections(view: Section, prefix: str) -> Iterator[tuple[str, Section]]:
    """Yields a view and the views of its sections, with what stands before their sentences."""
    yield f"{prefix.rstrip('.')}: " if prefix else "", view
    for name, info in type(view).model_fields.items():
        part = getattr(view, name)
        if isinstance(part, Section):
            yield from _sections(part, f"{prefix}{info.alias or name}.")


def _declared_key(cls: type[Section], loc: tuple[int | str, ...]) -> str:
    """Returns the dotted key a pydantic error is about; what follows the key in `loc` is inside its value."""
    parts: list[str] = []
    current: type[Section] | None = cls
    for part in loc:
        if current is None or part not in current.options():
            break
        parts.append(str(part))
        current = current.options()[str(part)].section
    return ".".join(parts)


def _hint(value: Any, annotation: Any) -> str:
    """Returns what to do about a number that was written as text."""
    if spells_number(value) and {int, float} & set(kinds_of(annotation)):
        return "; write it without quotes, and in YAML with a dot: 1.0e-4, as 1e-4 is text there"
    return ""
