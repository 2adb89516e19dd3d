"""What a search over hyper-parameters may vary, and how, from the declaration of each key."""

from __future__ import annotations

import collections.abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_origin

from rlframe.config.convert import kinds_of
from rlframe.config.declaration import Option, Section, wanted_text
from rlframe.config.faults import shorten
from rlframe.utils.errors import ConfigError

_PLAIN = (int, float, bool, str)


@dataclass(frozen=True)
class Domain:
    """The values that a search tries for one key.

    Attributes:
        key: Dotted key.
        kind: "range", "log range", "choice" or "fixed".
        values: Both ends of a range, else all values.
    """

    key: str
    kind: str
    values: tuple[Any, ...]

    def __str__(self) -> str:
        """Returns it in words."""
        if self.kind == "fixed":
            return f"{self.key} = {shorten(self.values[0])}"
        if self.kind == "choice":
            return f"{self.key} in {', '.join(map(shorten, self.values))}"
        return f"{self.key} from {self.values[0]:g} to {self.values[1]:g}" + (", log" * (self.kind == "log range"))


def search_domain(key: str, annotation: Any, traits: tuple[Any, Any], values: Sequence[Any]) -> Domain:
    """Returns how a key is searched.

    One value is fixed. Two numbers of a key that takes fractions are the ends of a range, by orders of magnitude where
    the declaration says `log`. Everything else is a choice.

    Args:
        key: Dotted key.
        annotation: Its declared type.
        traits: What its declaration says: `tunable` and `log`.
        values: The values that were given, read as the type.

    Raises:
        ConfigError: If the key cannot be tuned, or a range is none.
    """
    tunable, log = traits
    if len(values) == 1:
        return Domain(key, "fixed", tuple(values))
    if not values or not _may_vary(tunable, annotation):
        raise ConfigError(
            f"--{key.replace('_', '-')}: cannot be tuned: "
            + (
                "it says how a run is carried out, not how it learns"
                if tunable is False
                else "it takes no number, text, switch or list of them"
            )
            + "; give one value, or none"
        )
    is_range = len(values) == 2 and float in kinds_of(annotation) and all(_is_number(value) for value in values)
    if not is_range:
        return Domain(key, "choice", tuple(values))
    low, high = map(float, values)
    if low >= high or (log and low <= 0):
        wanted = "a smaller number above 0, then a larger one" if log else "a smaller number, then a larger one"
        raise ConfigError(f"--{key.replace('_', '-')}: got {low:g} {high:g}, wanted {wanted}")
    return Domain(key, "log range" if log else "range", (low, high))


def check_ends(domain: Domain, declared: Option, annotation: Any) -> None:
    """Raises where a value of a domain is out of the declared bounds.

    Raises:
        ConfigError: With the value and what is wanted.
    """
    for value in domain.values:
        if declared.value_fault(value):
            raise ConfigError(f"{domain.key}: got {shorten(value)}, wanted {wanted_text(annotation, declared)}")


def tunable_keys(declaration: type[Section]) -> list[str]:
    """Returns the top-level keys that a search may vary."""
    annotations = declaration.annotations()
    return [key for key, declared in declaration.options().items() if not declared.deprecated
            and _may_vary(declaration.trait(key, "tunable"), annotations[key])]  # fmt: skip


def _may_vary(tunable: bool | None, annotation: Any) -> bool:
    return _can_vary(annotation) if tunable is None else tunable


def _can_vary(annotation: Any) -> bool:
    kinds = [kind for kind in kinds_of(annotation) if kind is not type(None)]
    lists = (list, collections.abc.Sequence)
    return bool(kinds) and any(kind in _PLAIN or get_origin(kind) in lists for kind in kinds)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
