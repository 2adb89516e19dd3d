"""What the site says that the code knows: config keys, commands, names, renamed keys. All as Markdown."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from typer.testing import CliRunner

import rlframe
from rlframe.agents.registry import ALGORITHMS
from rlframe.cli import xagents_flags
from rlframe.cli.commands import app
from rlframe.config import faults
from rlframe.config.common import CommonConfig
from rlframe.config.options import AlgorithmConfig
from rlframe.config.reference import ReferenceRow, reference, render_markdown, variant_rows
from rlframe.config.renames import RENAMES


def packages() -> list[str]:
    """Returns the names of the packages that say what is public in them (`__all__`), `rlframe` itself first."""
    below = [each.name for each in pkgutil.walk_packages(rlframe.__path__, "rlframe.") if each.ispkg]
    return [name for name in ("rlframe", *below) if "__all__" in vars(importlib.import_module(name))]


def table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Returns rows as a Markdown table."""
    head = list(headings)
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def config_keys() -> str:
    """Returns the keys of all algorithms: the common ones, then what each has of its own or defaults otherwise."""
    common = [row for row in reference(CommonConfig) if not row.note]
    parts = ["## Common to all algorithms\n", render_markdown(common)]
    for key, declared in CommonConfig.options().items():
        for name, rows in variant_rows(declared.variants).items() if declared.variants else ():
            if rows:
                parts += [f"### `{key}` of type {name}\n", render_markdown(rows)]
    for name in algorithm_names():
        declaration = ALGORITHMS[name]()[0]._config_class
        parts += [f"## {name}\n", render_markdown(_own(reference(declaration), common))]
    return "\n".join(parts)


def _own(rows: Iterable[ReferenceRow], common: Iterable[ReferenceRow]) -> Iterator[ReferenceRow]:
    """Yields what is not the same for all algorithms."""
    known = set(common)
    return (row for row in rows if row not in known and not row.note and row.default != "{...}")


def keys_of_page(folder: str) -> str:
    """Returns the own keys of the algorithms whose page is in a folder of `rlframe/agents`.

    Own keys are those that the algorithm adds to the ones common to all; those whose default alone is another one are
    listed apart. An algorithm whose declaration is made from that of another one on the page is held against that one.
    """
    of_page = algorithms_of(folder)
    parts = [
        "## Keys\n\nMade from the declarations. The keys common to all algorithms, and what they mean, are on the page "
        "of [config keys](../reference/config.md); `rlframe config ALGO` prints all of one algorithm.\n"
    ]
    for name, declaration in sorted(of_page.items(), key=lambda item: len(item[1].__mro__)):
        bases = {made: other for other, made in of_page.items() if other != name}
        base = next((each for each in declaration.__mro__ if each in bases), CommonConfig)
        parts += list(_keys_against(name, declaration, base, bases.get(base, "the common keys")))
    return "\n".join(parts)


def algorithms_of(folder: str) -> dict[str, type[AlgorithmConfig]]:
    """Returns the declarations of the algorithms whose page is in a folder of `rlframe/agents`, by name."""
    names = (name for name in algorithm_names() if ALGORITHMS[name].trainer.startswith(f"rlframe.agents.{folder}:"))
    return {name: ALGORITHMS[name]()[0]._config_class for name in names}


def algorithm_names() -> list[str]:
    """Returns the names of all algorithms; of two for the same trainer the one without "contrib/"."""
    plain = {entry.trainer for name, entry in ALGORITHMS.items() if "/" not in name}
    return sorted(name for name, entry in ALGORITHMS.items() if "/" not in name or entry.trainer not in plain)


def _keys_against(
    name: str, declaration: type[AlgorithmConfig], base: type[AlgorithmConfig], called: str
) -> Iterator[str]:
    """Yields what an algorithm's keys are beside those of another declaration."""
    known, old = {row.key: row for row in reference(base)}, declaration.deprecated_keys()
    rows = [row for row in reference(declaration) if not row.note and row.default != "{...}" and row.key not in old]
    added = [row for row in rows if row.key not in known and not _is_as_in_model(row, known)]
    sections = sorted({row.key.split(".")[0] for row in rows if row.key not in known and _is_as_in_model(row, known)})
    changed = [row for row in rows if row.key in known and row.default != known[row.key].default]
    yield f"### Keys of {name}\n"
    if added:
        yield f"Added to {called}:\n\n{render_markdown(added)}"
    if sections:
        names = " and ".join(f"`{name}`" for name in sections)
        yield f"The keys of {names} that are not said mean what `model`'s do.\n"
    if changed:
        cells = ([f"`{row.key}`", f"`{row.default}`", f"`{known[row.key].default}`"] for row in changed)
        yield f"Other defaults than {called}:\n\n{table(['Key', f'Default of {name}', f'Of {called}'], cells)}"
    if not added and not changed:
        yield f"The same as {called}.\n"


def _is_as_in_model(row: ReferenceRow, known: Mapping[str, ReferenceRow]) -> bool:
    """Whether a key of another network's section is one of `model`'s, with its default."""
    section, _, key = row.key.partition(".")
    return bool(key) and section != "model" and replace(row, key=f"model.{key}") == known.get(f"model.{key}")


def commands(names: Sequence[str] = ()) -> str:
    """Returns the help of these commands (of all there are), as it is printed."""
    parts = []
    for name in names or command_names():
        words = [*name.split(), "--help"]
        printed = CliRunner().invoke(app, words, env={"COLUMNS": "100"}, prog_name="rlframe").output
        parts.append(f"## rlframe {name}\n\n```text\n{printed.strip()}\n```\n")
    return "\n".join(parts)


def command_names() -> list[str]:
    """Returns the names of all commands, those of groups with the group's before it."""
    found = [("", app), *((f"{group.name} ", group.typer_instance) for group in app.registered_groups)]
    return sorted(
        prefix + (command.name or command.callback.__name__)
        for prefix, each in found
        for command in each.registered_commands
    )


def public_names() -> str:
    """Returns the names of `rlframe` with what they are, then those of its packages."""
    parts = [_names_of("rlframe", "Name"), "## Methods\n"]
    for name in ("Trainer", "Policy", "RolloutWorker", "SampleBatch", "MultiAgentEnv", "ExternalEnv", "VectorEnv"):
        parts += [f"### {name}\n", _methods(getattr(rlframe, name))]
    for package in packages()[1:]:
        parts += [f"## {package}\n", _names_of(package, "Name")]
    return "\n".join(parts)


def _names_of(package: str, heading: str) -> str:
    module = importlib.import_module(package)
    names = [name for name in vars(module)["__all__"] if not name.startswith("__")]
    return table([heading, "Is"], ([f"`{name}`", first_line(getattr(module, name))] for name in names))


def _methods(cls: type) -> str:
    """Returns the public methods that a class declares, or has of its bases here, with their first lines."""
    found = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("rlframe"):
            found |= {name: value for name, value in vars(base).items() if not name.startswith("_")}
    documented = ((name, getattr(cls, name)) for name, value in sorted(found.items()) if _is_method(value))
    return table(["Method", "Does"], ([f"`{name}{_signature(each)}`", first_line(each)] for name, each in documented))


def _is_method(value: object) -> bool:
    return callable(value) or isinstance(value, (staticmethod, classmethod))


def _signature(function: Callable[..., object]) -> str:
    parameters = [name for name in inspect.signature(function).parameters if name != "self"]
    return f"({', '.join(parameters)})"


def first_line(value: object) -> str:
    """Returns the first sentence of a docstring, with code as Markdown has it; of a constant, what it is."""
    if not callable(value) and not inspect.ismodule(value):
        return f"`{value!r}`" if isinstance(value, (str, int, tuple)) else f"a constant, {type(value).__name__}"
    of_actor = getattr(value, "__ray_metadata__", None)  # Ray's handle of a class says nothing of it
    text = (inspect.getdoc(of_actor.modified_class) if of_actor else getattr(value, "__doc__", None)) or ""
    return " ".join(text.split("\n\n")[0].split())


def renamed_keys() -> str:
    """Returns the keys of other releases of RLlib, and what they are here."""
    answers = ((old, new, new.pointless and f"nothing: {new.pointless}") for old, new in sorted(RENAMES.items()))
    rows = ([f"`{old}`", _here(new.targets, new.advice or answer)] for old, new, answer in answers)
    return table(["Elsewhere", "Here"], rows)


def _here(targets: Iterable[str], advice: str | None) -> str:
    return advice or ", ".join(f"`{target}`" for target in targets)


def keys_of_others() -> str:
    """Returns Stable-Baselines3's names of keys, and what they are here."""
    rows = ([f"`{old}`", " or ".join(f"`{key}`" for key in new)] for old, new in faults._STABLE_BASELINES.items())
    return table(["Stable-Baselines3", "Here"], rows)


def flags_of_xagents() -> str:
    """Returns xagents' flags, and the keys that take their value."""
    rows = ([f"`{_flag(old)}`", f"`{_flag(new[0])}`"] for old, new in xagents_flags._RENAMED.items())
    return table(["xagents", "Here"], rows)


def answers_to_xagents() -> str:
    """Returns xagents' flags that have no counterpart, and what to do instead."""
    return table(["xagents", "Instead"], ([f"`{_flag(old)}`", said] for old, said in xagents_flags._ANSWERS.items()))


def _flag(key: str) -> str:
    return "--" + key.replace("_", "-")


GENERATED: dict[str, Callable[..., str]] = {
    made.__name__: made
    for made in (
        config_keys,
        keys_of_page,
        commands,
        public_names,
        renamed_keys,
        keys_of_others,
        flags_of_xagents,
        answers_to_xagents,
    )
}
"""By the name that a page gives the directive, what makes its text; words behind the name are its arguments."""
