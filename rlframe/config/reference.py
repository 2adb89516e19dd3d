"""The reference of a config: one row for each key, and the rows as a Markdown table."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rlframe.config.declaration import Option, Section, Variants, wanted_text
from rlframe.config.faults import shorten
from rlframe.config.nested_dict import type_name
from rlframe.config.options import AlgorithmConfig


@dataclass(frozen=True)
class ReferenceRow:
    """What is known about one key.

    Attributes:
        key: Dotted key.
        type: Type, bounds and choices in words.
        default: The default as Python writes it.
        unit: Unit of the value, or "".
        meaning: One sentence.
        source: Paper or book, or "".
        note: What this version does not honour of it, or "".
        alias: A second name of its flag on the command line, or "".
    """

    key: str
    type: str
    default: str
    unit: str
    meaning: str
    source: str
    note: str = ""
    alias: str = ""


def reference(declaration: type[AlgorithmConfig]) -> list[ReferenceRow]:
    """Returns one row for each key, nested ones with dotted names, for the reference page and command line."""
    notes = {key: refusal.sentence for key, refusal in declaration.unsupported.items()}
    return reference_rows(declaration, declaration.defaults(), notes)


def reference_rows(cls: type[Section], defaults: Mapping[str, Any], notes: Mapping[str, str]) -> list[ReferenceRow]:
    """Returns one row for each key of a section; the keys of its sections follow it, with dotted names.

    Args:
        cls: The section.
        defaults: Its defaults.
        notes: By dotted key, what is not honoured.
    """
    return list(_rows(cls, defaults, notes, ""))


def variant_rows(variants: Variants) -> dict[str, list[ReferenceRow]]:
    """Returns the rows of every form of a section with a `type`, by the name of the form."""
    return {name: reference_rows(form, form.defaults(), {}) for name, form in variants.sections.items()}


def render_markdown(rows: Iterable[ReferenceRow]) -> str:
    """Returns the rows as a Markdown table; type and unit stand behind the meaning, seen so on narrow pages, too."""
    lines = ["| Key | Default | Meaning |", "|---|---|---|"]
    for row in rows:
        meaning = f"{row.meaning} ({row.source})" if row.source else row.meaning
        meaning += f" *{row.type[:1].upper()}{row.type[1:]}{f', in {row.unit}' if row.unit else ''}.*"
        meaning += f" *In this version: {row.note}.*" if row.note else ""
        cells = (f"`{row.key}`", f"`{row.default}`", meaning)
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def _rows(
    cls: type[Section], values: Mapping[str, Any], notes: Mapping[str, str], prefix: str
) -> Iterator[ReferenceRow]:
    """Yields the rows of a section, those of its default `type` included."""
    annotations = cls.annotations()
    for key, declared in cls.options().items():
        form = _form(declared, values.get(key))
        default = "{...}" if declared.section is not None else shorten(values.get(key))
        words = wanted_text(annotations[key], declared).removesuffix(f" ({declared.unit})")
        yield ReferenceRow(
            prefix + key, words, default, declared.unit or "", declared.description, declared.source or "",
            notes.get(prefix + key, ""), cls.trait(key, "alias") or "",
        )  # fmt: skip
        if form is not None:
            below = {**form.defaults(), **values[key]}
            yield from _rows(form, below, notes, f"{prefix}{key}.")


def _form(declared: Option, value: Any) -> type[Section] | None:
    """Returns the declaration of the keys inside a value, if it has one."""
    if declared.section is not None:
        return declared.section
    if declared.variants is not None and isinstance(value, dict):
        return declared.variants.sections.get(str(type_name(value.get("type"))))
    return None
