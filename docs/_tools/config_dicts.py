"""Writes `rlframe/agents/config_dicts.py`, the configs' keys for editors: `python docs/_tools/config_dicts.py`."""

from __future__ import annotations

import collections.abc
import keyword
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rlframe.agents.registry import ALGORITHMS
from rlframe.config.convert import kinds_of
from rlframe.config.options import AlgorithmConfig, Option, Section

TARGET = Path(__file__).parents[2] / "rlframe" / "agents" / "config_dicts.py"

_HEAD = '''"""The config keys of each algorithm as a `TypedDict`, for editors and type checkers; nothing reads them.

Made from the declarations by docs/_tools/config_dicts.py; change those. Any key may be left out.
"""

# ruff: noqa: D101, E501
# fmt: off
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from typing_extensions import TypedDict
'''
_CONTAINERS = {dict: "Mapping", collections.abc.Mapping: "Mapping", list: "Sequence", tuple: "Sequence"}


def text() -> str:
    """Returns the module."""
    trainers = {name.rpartition("/")[2]: entry()[0] for name, entry in ALGORITHMS.items()}
    declarations = {name: trainer._config_class for name, trainer in trainers.items()}
    classes = list(dict.fromkeys(cls for made in declarations.values() for cls in _line(made)))
    sections = list(dict.fromkeys(part for cls in classes for part in _sections(cls)))
    parts = [_HEAD]
    parts += [_class(cls, f"{cls.__name__}Dict", _types(sections)) for cls in sections if cls.own_options()]
    parts += [_class(cls, _keys_of(cls), _types(classes)) for cls in classes if cls.own_options()]
    parts += [_algorithm(name, made) for name, made in declarations.items()]
    names = sorted(
        [f"{made.__name__}Dict" for made in declarations.values()] + [f"{cls.__name__}Dict" for cls in sections]
    )
    return "\n\n".join(parts) + "\n\n__all__ = [\n" + "".join(f'    "{name}",\n' for name in names) + "]\n"


def _line(cls: type[Section]) -> Iterator[type[Section]]:
    """Yields a declaration and what it inherits from, the base first."""
    return (
        each for each in reversed(cls.__mro__) if issubclass(each, Section) and each not in (Section, AlgorithmConfig)
    )


def _sections(cls: type[Section]) -> Iterator[type[Section]]:
    for declared in cls.own_options().values():
        if declared.section is not None:
            for part in _line(declared.section):
                yield from _sections(part)
                yield part


def _keys_of(cls: type[Section]) -> str:
    return f"_{cls.__name__.removesuffix('Config')}Keys"


def _types(classes: list[type[Section]]) -> Mapping[str, str]:
    """Returns the type of each key: of all classes that declare it, for a subclass may widen it."""
    found: dict[str, list[str]] = {}
    for cls in classes:
        for key, declared in cls.own_options().items():
            if _extends(cls, key):
                continue  # a checker names the unknown key of one class, of a union it does not
            found.setdefault(key, []).extend(_members(cls.annotations()[key], declared))
    return {key: _union(members) for key, members in found.items()}


def _extends(cls: type[Section], key: str) -> bool:
    """Returns whether a declaration adds keys to the section that a base has by this name."""
    section = cls.own_options()[key].section
    bases = [base.own_options()[key].section for base in cls.__mro__[1:] if key in _declared(base)]
    return section is not None and any(base is not None and section is not base for base in bases)


def _declared(cls: type) -> Mapping[str, Option]:
    return cls.own_options() if issubclass(cls, Section) else {}


def _union(members: list[str]) -> str:
    kinds = [kind for kind in dict.fromkeys(members) if kind != "None"]
    return "Any" if "Any" in kinds else " | ".join([*kinds, *(["None"] if "None" in members else [])])


def _members(annotation: Any, declared: Option | None = None) -> list[str]:
    return [_rendered(kind, declared) for kind in kinds_of(annotation)]


def _rendered(kind: Any, declared: Option | None = None) -> str:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    choices = None if declared is None else declared.choices
    if declared is not None and declared.section is not None and origin is not list:
        return f"{declared.section.__name__}Dict"
    if kind is Any:
        return "Any"
    if kind is types.NoneType:
        return "None"
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if kind is str and choices:
        return f"Literal[{', '.join(repr(choice) for choice in choices)}]"
    if origin is collections.abc.Callable or kind is Callable:
        return "Callable[..., Any]"
    if origin in _CONTAINERS or kind in _CONTAINERS:
        name = _CONTAINERS[origin or kind]
        inner = [_union(_members(part, declared)) for part in arguments if part is not ...]
        inner = [_union(inner)] if name == "Sequence" and inner else inner
        return f"{name}[{', '.join(inner or ['Any'] * (1 + (name == 'Mapping')))}]"
    return kind.__name__ if kind.__module__ == "builtins" else "Any"


def _bases(cls: type[Section], name: Callable[[type[Section]], str]) -> list[str]:
    """Returns the bases that declare keys, without those that others of them inherit from."""
    found: list[type[Section]] = []
    for base in cls.__bases__:
        if issubclass(base, Section) and base not in (Section, AlgorithmConfig):
            found += [base] if base.own_options() else _parents(base)
    kept = [base for base in dict.fromkeys(found) if not any(base in other.__mro__[1:] for other in found)]
    return [name(base) for base in kept] or ["TypedDict"]


def _parents(cls: type[Section]) -> list[type[Section]]:
    return [
        each
        for base in cls.__bases__
        if issubclass(base, Section) and base not in (Section, AlgorithmConfig)
        for each in ([base] if base.own_options() else _parents(base))
    ]


def _class(cls: type[Section], name: str, kinds: Mapping[str, str]) -> str:
    """Returns a class with the keys that a declaration adds."""
    inherited = {key for base in cls.__mro__[1:] for key in _declared(base)}
    own = {
        key: declared for key, declared in cls.own_options().items() if key not in inherited and not declared.overrides
    }
    reserved = {key: kinds[key] for key in own if keyword.iskeyword(key)}
    bases = _bases(cls, _keys_of if issubclass(cls, AlgorithmConfig) else lambda base: f"{base.__name__}Dict")
    before = ""
    if reserved:
        fields = ", ".join(f'"{key}": {kind!r}' for key, kind in reserved.items())
        before = f'{name}Reserved = TypedDict("{name}Reserved", {{{fields}}}, total=False)\n\n\n'
        bases = [*(base for base in bases if base != "TypedDict"), f"{name}Reserved"]
    lines = [f"class {name}({', '.join(bases)}, total=False):"]
    for key, declared in own.items():
        if key not in reserved:
            lines += [f"    {key}: {kinds[key]}", f'    """{_meaning(declared)}"""']
    for key, declared in cls.own_options().items():
        if _extends(cls, key):
            lines += [f"    {key}: {_members(None, declared)[0]}  # type: ignore[misc]"]
            lines += [f'    """{_meaning(declared)}"""']
    return before + "\n".join(lines if len(lines) > 1 else [*lines, "    pass"])


def _meaning(declared: Option) -> str:
    unit = f" In {declared.unit}." if declared.unit else ""
    return (" ".join(declared.description.split()) + unit).replace("\\", "\\\\").replace('"""', "'''")


def _algorithm(name: str, declaration: type[AlgorithmConfig]) -> str:
    """Returns the class of an algorithm, which alone has the sections that override its whole config."""
    base = _keys_of(declaration) if declaration.own_options() else ", ".join(_bases(declaration, _keys_of))
    overrides = [key for key, declared in declaration.options().items() if declared.overrides]
    title = f"{declaration.__name__}Dict"
    lines = [f"class {title}({base}, total=False):", f'    """Config keys of {name}."""', ""]
    return "\n".join([*lines, *(f"    {key}: {title}" for key in overrides)])


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
    sys.stdout.write(f"{TARGET}\n")
