"""Config keys as flags: `--lr 1e-3 --model.fcnet-hiddens '[64, 64]' --no-double-q`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rlframe.config.convert import kinds_of, parse_number, spells_number
from rlframe.config.declaration import Option, Section
from rlframe.config.faults import did_you_mean, nearest_keys, other_librarys_key
from rlframe.config.nested_dict import assign, lookup
from rlframe.config.renames import RENAMES
from rlframe.config.search import Domain, check_ends, search_domain
from rlframe.utils.errors import ConfigError
from rlframe.utils.yaml_text import parse_yaml

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})
_NONE = frozenset({"none", "null", "~"})


class Flag(NamedTuple):
    """One config flag as it was typed.

    Attributes:
        name: Without the leading dashes.
        value: What followed it; None if nothing did.
        more: Values after the first, where a flag takes several.
    """

    name: str
    value: str | None
    more: tuple[str, ...] = ()


def split_flags(
    arguments: Sequence[str], own: Mapping[str, bool], *, many_values: bool = False
) -> tuple[list[str], list[Flag]]:
    """Separates a command's own options from config keys.

    A config flag takes the next word as its value, unless that is a flag too; `--key=value` always works.

    Args:
        arguments: The command's words.
        own: By option string (`--env`), whether it takes a value.
        many_values: Whether a config flag takes all words up to the next flag.

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
        else:
            flags.append(Flag(name[2:], *_values(words, own, many_values)))
    return kept, flags


def _values(words: list[str], own: Mapping[str, bool], many: bool) -> tuple[str | None, tuple[str, ...]]:
    """Takes the values of a flag off the front of the words that are left."""
    taken: list[str] = []
    while words and not words[0].startswith("--") and words[0] not in own and (many or not taken):
        taken.append(words.pop(0))
    return (taken[0], tuple(taken[1:])) if taken else (None, ())


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
            dotted, value = _read(flag, Keys(declaration, defaults, [config, base, defaults]))
        except ConfigError as error:
            faults.append(str(error))
        else:
            assign(config, dotted, value)
    return config, faults


def domains_from_flags(
    flags: Iterable[Flag], declaration: type[Section], defaults: Mapping[str, Any], base: Mapping[str, Any]
) -> tuple[list[Domain], list[str]]:
    """Returns what a search tries for each flag, and what is wrong with flags.

    Args:
        flags: From `split_flags` with `many_values`.
        declaration: Declares keys, types, and how a key is searched.
        defaults: The algorithm's defaults.
        base: The config that the search starts from.
    """
    keys = Keys(declaration, defaults, [base, defaults])
    domains, faults = [], []
    for flag in flags:
        try:
            domains.append(_domain(flag, keys))
        except ConfigError as error:
            faults.append(str(error))
    return domains, faults


def _domain(flag: Flag, keys: Keys) -> Domain:
    dotted, first = _read(flag, keys)
    form, key = keys.place(dotted)
    default = lookup(keys.defaults, dotted)
    annotation = type(default) if form is None else form.annotations()[key]
    traits = (None, None) if form is None else (form.trait(key, "tunable"), form.trait(key, "log"))
    values = [first, *(read_value(text, annotation) for text in flag.more)]
    domain = search_domain(dotted, annotation, traits, values)
    if form is not None:
        check_ends(domain, form.options()[key], annotation)
    return domain


class Keys:
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
        form, key = self.place(dotted)
        return Any if form is None else form.annotations()[key]

    def place(self, dotted: str) -> tuple[type[Section] | None, str]:
        """Returns the section that declares a key, None for keys that are free, and the key's name in it.

        Raises:
            KeyError: If the key is unknown.
        """
        form: type[Section] = self.declaration
        parts = dotted.split(".")
        for depth, part in enumerate(parts[:-1]):
            if part not in form.options():
                self._check_undeclared(dotted, form, depth)
                return None, parts[-1]
            if not _holds_keys(form.options()[part], form.annotations()[part]):
                raise KeyError(dotted)
            below = self._below(form.options()[part], ".".join(parts[: depth + 1]), form)
            if below is None:
                return None, parts[-1]
            form = below
        if parts[-1] not in form.options():
            self._check_undeclared(dotted, form, len(parts) - 1)
            return None, parts[-1]
        return form, parts[-1]

    def spelled(self, name: str) -> str:
        """Returns the dotted key that a flag's name means: dashes are underscores, and keys have second names."""
        dotted = name.replace("-", "_")
        return self.declaration.aliases().get(dotted, dotted)

    def known(self) -> set[str]:
        """Returns every dotted key that a message may propose."""
        return self.declaration.known_keys() | set(map(str, self.defaults)) | set(self.declaration.aliases())

    def _below(self, declared: Option, dotted: str, form: type[Section]) -> type[Section] | None:
        """Returns the declaration of a section's keys, None where any key may stand."""
        if declared.overrides:
            return form
        if declared.variants is not None:
            names = (lookup(layer, f"{dotted}.type") for layer in self.layers)
            chosen = next((name for name in names if name is not None), None)
            return declared.variants.sections.get(str(chosen))
        return declared.section

    def _check_undeclared(self, dotted: str, form: type[Section], depth: int) -> None:
        """Raises KeyError for unknown keys: not for the user's own, and those that are renamed on the way."""
        own = depth == 0 and form is self.declaration and dotted.split(".")[0] in self.defaults
        if not own and dotted not in RENAMES:  # the trainer translates those, and says so
            raise KeyError(dotted)


def _holds_keys(declared: Option, annotation: Any) -> bool:
    is_section = declared.section is not None or declared.variants is not None or declared.overrides
    return is_section or any(_base(kind) in (dict, Mapping, Any) for kind in kinds_of(annotation))


def _read(flag: Flag, keys: Keys) -> tuple[str, Any]:
    """Returns dotted key and value of a flag."""
    dotted = keys.spelled(flag.name)
    try:
        annotation = keys.annotation(dotted)
    except KeyError:
        return _read_negation(flag, dotted, keys)
    if flag.value is not None:
        return dotted, read_value(flag.value, annotation)
    if bool in kinds_of(annotation) or annotation is Any:
        return dotted, True
    raise ConfigError(f"--{flag.name}: got no value, wanted one: --{flag.name}=VALUE")


def flag_of(key: str) -> str:
    """Returns how a dotted key is typed: "--model.fcnet-hiddens"."""
    return f"--{key[0]}{key[1:].replace('_', '-')}"


def _read_negation(flag: Flag, dotted: str, keys: Keys) -> tuple[str, Any]:
    """Returns (key, False) for --no-key; anything else is unknown."""
    if dotted.startswith("no_") and flag.value is None:
        positive = dotted.removeprefix("no_")
        try:
            if bool in kinds_of(keys.annotation(positive)):
                return positive, False
        except KeyError:
            pass
    here = other_librarys_key(dotted, keys.known())
    near = did_you_mean(map(flag_of, here or nearest_keys(dotted, keys.known())))
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
    return parse_yaml(text, where=repr(text))


def _is_plain_text(kinds: Collection[Any]) -> bool:
    """Whether a value that is no number is to be taken as it was typed."""
    return str in kinds or not any(_base(kind) in (Any, list, dict, tuple, Sequence, Mapping) for kind in kinds)


def _base(kind: Any) -> Any:
    """Returns `list` for `list[int]`."""
    return getattr(kind, "__origin__", kind)
