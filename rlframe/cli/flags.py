"""Config keys as flags: `--lr 1e-3 --model.fcnet-hiddens '[64, 64]' --no-double-q`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rlframe.cli.config_files import parse
from rlframe.config.convert import kinds_of, parse_number, spells_number
from rlframe.config.declaration import Option, Section
from rlframe.config.faults import did_you_mean, nearest_keys
from rlframe.config.plain import assign, lookup
from rlframe.config.renames import RENAMES
from rlframe.utils.errors import ConfigError

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})
_NONE = frozenset({"none", "null", "~"})


class Flag(NamedTuple):
    """One config flag as it was typed.

    Attributes:
        name: Without the leading dashes.
        value: What followed it; None if nothing did.
    """

    name: str
    value: str | None


def split_flags(arguments: Sequence[str], own: Mapping[str, bool]) -> tuple[list[str], list[Flag]]:
    """Separates a command's own options from config keys.

    A config flag takes the next word as its value, unless that is a flag too; `--key=value` always works.

    Args:
        arguments: The command's words.
        own: By option string (`--env`), whether it takes a value.

    Returns:
        The words that are the command's own, and the config flags.
    """
    kept: list[str] = []
    flags: list[Flag] = []
    words = list(arguments)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if word == "--":
            return [*kept, word, *words], flags
        if name in own:
            kept.append(word)
            if own[name] and not equals and words:
                kept.append(words.pop(0))
        elif not word.startswith("--"):
            kept.append(word)
        elif equals:
            flags.append(Flag(name[2:], value))
        elif words and not words[0].startswith("--"):
            flags.append(Flag(name[2:], words.pop(0)))
        else:
            flags.append(Flag(name[2:], None))
    return kept, flags


def config_from_flags(
    flags: Iterable[Flag], declaration: type[Section], defaults: Mapping[str, Any], base: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Returns the nested config that flags spell, each value read as its declared type, and what is wrong with flags.

    Args:
        flags: From `split_flags`.
        declaration: Declares keys and types.
        defaults: The algorithm's defaults; keys that only they have are the user's own, and are flags as well.
        base: The config the flags are laid on: it says which `type` a section has.

    Returns:
        The config of the flags that can be read, and a sentence for each that cannot.
    """
    config: dict[str, Any] = {}
    faults = []
    for flag in sorted(flags, key=lambda flag: flag.name.endswith(".type") is False):  # types first: they choose keys
        try:
            dotted, value = _read(flag, _Keys(declaration, defaults, [config, base, defaults]))
        except ConfigError as error:
            faults.append(str(error))
        else:
            assign(config, dotted, value)
    return config, faults


class _Keys:
    """Finds what is declared about a dotted key.

    Args:
        declaration: Declares the top level.
        defaults: Default values.
        layers: Configs that may say the `type` of a section, the strongest first.
    """

    def __init__(
        self, declaration: type[Section], defaults: Mapping[str, Any], layers: Sequence[Mapping[str, Any]]
    ) -> None:
        self.declaration = declaration
        self.defaults = defaults
        self.layers = layers

    def annotation(self, dotted: str) -> Any:
        """Returns the declared type of a key, `Any` for keys that are free; raises KeyError for unknown ones."""
        form: type[Section] | None = self.declaration
        parts = dotted.split(".")
        for depth, part in enumerate(parts):
            if form is None:
                return Any
            options = form.options()
            if part not in options:
                return self._undeclared(dotted, form, depth)
            annotation = form.annotations()[part]
            if depth == len(parts) - 1:
                return annotation
            if not _holds_keys(options[part], annotation):
                raise KeyError(dotted)
            form = self._below(options[part], ".".join(parts[: depth + 1]), form)
        raise AssertionError("unreachable: the last part returns")

    def known(self) -> set[str]:
        """Returns every dotted key that a message may propose."""
        return self.declaration.known_keys() | set(map(str, self.defaults))

    def _below(self, declared: Option, dotted: str, form: type[Section]) -> type[Section] | None:
        """Returns the declaration of a section's keys, None where any key may stand."""
        if declared.overrides:
            return form
        if declared.variants is not None:
            names = (lookup(layer, f"{dotted}.type") for layer in self.layers)
            chosen = next((name for name in names if name is not None), None)
            return declared.variants.sections.get(str(chosen))
        return declared.section

    def _undeclared(self, dotted: str, form: type[Section], depth: int) -> Any:
        """Returns `Any` for a key of the user's own and one that is renamed on the way."""
        own = depth == 0 and form is self.declaration and dotted.split(".")[0] in self.defaults
        if own or dotted in RENAMES:  # the trainer translates those, and says so
            return Any
        raise KeyError(dotted)


def _holds_keys(declared: Option, annotation: Any) -> bool:
    is_section = declared.section is not None or declared.variants is not None or declared.overrides
    return is_section or any(_base(kind) in (dict, Mapping, Any) for kind in kinds_of(annotation))


def _read(flag: Flag, keys: _Keys) -> tuple[str, Any]:
    """Returns dotted key and value of a flag."""
    dotted = flag.name.replace("-", "_")
    try:
        annotation = keys.annotation(dotted)
    except KeyError:
        return _read_negation(flag, dotted, keys)
    if flag.value is not None:
        return dotted, read_value(flag.value, annotation)
    if bool in kinds_of(annotation) or annotation is Any:
        return dotted, True
    raise ConfigError(f"--{flag.name}: got no value, wanted one: --{flag.name}=VALUE")


def _read_negation(flag: Flag, dotted: str, keys: _Keys) -> tuple[str, Any]:
    """Returns (key, False) for --no-key; anything else is unknown."""
    if dotted.startswith("no_") and flag.value is None:
        positive = dotted.removeprefix("no_")
        try:
            if bool in kinds_of(keys.annotation(positive)):
                return positive, False
        except KeyError:
            pass
    near = did_you_mean(f"--{key}" for key in nearest_keys(dotted, keys.known()))
    raise ConfigError(f"--{flag.name}: no such option or config key{near}")


def read_value(text: str, annotation: Any) -> Any:
    """Returns what a word on the command line means for a declared type; the text itself where nothing fits.

    Args:
        text: The word.
        annotation: The declared type.
    """
    kinds = kinds_of(annotation)
    lower = text.strip().lower()
    if lower in _NONE and (type(None) in kinds or Any in kinds):
        return None
    numbers = bool({int, float} & set(kinds))
    if bool in kinds and lower in _TRUE | _FALSE and not (numbers and lower in "01"):
        return lower in _TRUE
    if numbers and spells_number(text):
        return parse_number(text)
    if _is_plain_text(kinds) and not text.lstrip().startswith(("[", "{")):
        return text
    return parse(text, where=repr(text))


def _is_plain_text(kinds: Collection[Any]) -> bool:
    """Whether a value that is no number is to be taken as it was typed."""
    return str in kinds or not any(_base(kind) in (Any, list, dict, tuple, Sequence, Mapping) for kind in kinds)


def _base(kind: Any) -> Any:
    """Returns `list` for `list[int]`."""
    return getattr(kind, "__origin__", kind)
