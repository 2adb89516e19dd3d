"""Spaces that code written for the old gym and code written for Gymnasium both know.

Programs of RLlib 1.x declare spaces with `gym.spaces`, and ask `isinstance(space, gym.spaces.Dict)` in their models and
policies. Everything here works with Gymnasium's. So a converted space is of a class that derives from both: it behaves
as Gymnasium's, and is an instance of the old one as well. `gym` is never imported; where the program has not done so,
nobody can ask.
"""

from __future__ import annotations

import functools
import sys
import types
from abc import ABCMeta
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
from gymnasium import spaces

from rlframe.utils.errors import EnvError

#: What a class that derives from both has of its own, or has no use for: it is filled, not constructed.
_NOT_TAKEN_OVER = frozenset(
    {
        "__abstractmethods__", "__annotations__", "__classcell__", "__dict__", "__doc__", "__getstate__", "__init__",
        "__init_subclass__", "__module__", "__new__", "__orig_bases__", "__parameters__", "__qualname__", "__reduce__",
        "__reduce_ex__", "__setstate__", "__slots__", "__weakref__", "_abc_impl",
    }
)  # fmt: skip


class KnownToBoth:
    """Marks spaces that are Gymnasium's and the old gym's.

    Attributes:
        classes: The class of each.
    """

    classes: tuple[type, type]

    def __reduce__(self) -> Any:
        """Says how to make it again: classes made while a program runs cannot be imported by another process."""
        return _filled, (*self.classes, dict(vars(self)))

    def __eq__(self, other: object) -> bool:
        """Compares, also with spaces of the old gym."""
        if not isinstance(other, spaces.Space) and _old_kind(other) is not None:
            other = convert_space(other)
        equal: bool = super().__eq__(other)
        return equal

    __hash__ = None  # type: ignore[assignment]  # mutable, like every Gymnasium space


def convert_space(space: Any) -> spaces.Space[Any]:
    """Returns the Gymnasium space that equals `space`, which may be one of the old gym's, nested or not.

    The old gym need not be installed: spaces are known by the name of their class (or of one it derives from) and by
    their attributes. Methods and attributes of a user's own class stay. Gymnasium spaces come back themselves.

    Raises:
        EnvError: If it is no space that is known.
    """
    if isinstance(space, spaces.Space):
        return space
    old = _old_kind(space)
    if old is None:
        raise EnvError(
            f"{space!r} ({type(space).__name__}) is no space that can be converted; wanted one of gymnasium.spaces, or "
            f"of the old gym: {', '.join(_MAKERS)}."
        )
    try:
        made = _MAKERS[old.__name__](space)
        original = getattr(space, "original_space", None)
        state = {**getattr(space, "__dict__", {}), **vars(made)}
        if original is not None:
            state["original_space"] = convert_space(original)
        return _filled(type(made), type(space), state)
    except (AttributeError, AssertionError, ValueError, TypeError) as error:
        raise EnvError(
            f"{space!r} looks like a gym {old.__name__} space but cannot be converted ({error}). "
            "Declare it with gymnasium.spaces."
        ) from error


def convert_spaces(given: Any) -> Any:
    """Returns what may be a space, or a dict of spaces by agent, `known_to_both`; anything else as it is."""
    if isinstance(given, Mapping) and not hasattr(given, "sample"):
        return {agent: convert_spaces(part) for agent, part in given.items()}
    return known_to_both(given) if isinstance(given, spaces.Space) or _old_kind(given) is not None else given


def converted(given: Any) -> Any:
    """Returns a space of the old gym converted; anything else, Gymnasium's spaces too, as it is."""
    old = not isinstance(given, spaces.Space) and _old_kind(given) is not None
    return convert_space(given) if old else given


def known_to_both(space: Any) -> spaces.Space[Any]:
    """Returns `space` converted, as one that code written for either library knows.

    Gymnasium's spaces come back themselves unless the program has imported the old gym.

    Raises:
        EnvError: If it is no space that is known.
    """
    new = convert_space(space)
    if isinstance(new, KnownToBoth) or _old_gym() is None:
        return new
    state = {name: _known_inside(value) for name, value in vars(new).items()}
    return _filled(type(new), _old_counterpart(type(new)), state)


def class_known_to_both(kind: Any) -> Any:
    """Returns a class that derives from a Gymnasium space's, and from the old one where the program imported that."""
    if issubclass(kind, KnownToBoth) or _old_gym() is None:
        return kind
    return _both(kind, _old_counterpart(kind))


def _known_inside(value: Any) -> Any:
    """Returns an attribute of a space, with the spaces in it known to both."""
    if isinstance(value, spaces.Space):
        return known_to_both(value)
    if isinstance(value, np.integer):
        return int(value)  # as in the old gym: Keras takes no NumPy integer for the size of a layer
    if isinstance(value, dict) and value and all(isinstance(item, spaces.Space) for item in value.values()):
        return {key: known_to_both(item) for key, item in value.items()}
    if isinstance(value, tuple) and value and all(isinstance(item, spaces.Space) for item in value):
        return tuple(known_to_both(item) for item in value)
    return value


def _old_gym() -> Any:
    """Returns the old gym's `spaces`, None unless the program has imported it."""
    module = sys.modules.get("gym.spaces")
    return None if module is spaces else module  # some programs put Gymnasium into gym's place


def _old_counterpart(kind: type) -> type:
    """Returns the class of the old gym that stands for one of Gymnasium's, or for one derived from it."""
    old = _old_gym()
    found: type = next(getattr(old, base.__name__) for base in kind.__mro__ if hasattr(old, base.__name__))
    return found


def _old_kind(space: Any) -> type | None:
    """Returns the class of the old gym that a space is of: gym's own where it derives from one, else by its name."""
    known = [kind for kind in type(space).__mro__ if kind.__name__ in _MAKERS]
    return next((kind for kind in known if kind.__module__.partition(".")[0] == "gym"), known[0] if known else None)


@functools.lru_cache(maxsize=256)
def _both(kind: Any, old: Any) -> type:
    """Returns a class that behaves as `kind`, is also an `old`, and has what a user's class added to the old gym's."""
    users = _users_classes(old)
    own: dict[str, Any] = {"classes": (kind, old)}
    for base in reversed(users):
        own.update({name: value for name, value in vars(base).items() if name not in _NOT_TAKEN_OVER})
    name = (users or [kind])[0].__name__
    if not _stand_in_one_line(kind, old):
        # Dict and Tuple have their bases in another order in the two libraries. As abstract classes of collections
        # they can be told what is one of them.
        made: Any = types.new_class(
            name, (KnownToBoth, kind, _space_class(old)), exec_body=lambda body: body.update(own)
        )
        cast(ABCMeta, old).register(made)
        return cast(type, made)
    return types.new_class(name, (KnownToBoth, kind, old), exec_body=lambda body: body.update(own))


def _stand_in_one_line(kind: type, old: type) -> bool:
    """Returns whether a class can derive from both; if not, the old one must be abstract."""
    if not isinstance(old, ABCMeta):
        return True
    try:
        types.new_class("Both", (kind, old))
    except TypeError:
        return False
    return True


def _space_class(old: type) -> type:
    """Returns the base of all spaces that one of the old gym's derives from."""
    return next(base for base in old.__mro__ if base.__name__ == "Space")


def _users_classes(old: type) -> list[type]:
    """Returns the classes that a user derived from one of the old gym's, the last first."""
    line = old.__mro__
    known = [kind for kind in line if kind.__name__ in _MAKERS]
    root = next((kind for kind in known if kind.__module__.partition(".")[0] == "gym"), known[0])
    return list(line[: line.index(root)])


def _filled(kind: type, old: type, state: Mapping[str, Any]) -> spaces.Space[Any]:
    """Returns a space of both classes with these attributes."""
    made: spaces.Space[Any] = object.__new__(_both(kind, old))
    vars(made).update(state)
    return made


def _make_box(space: Any) -> spaces.Box:
    # Gymnasium warns of bounds that are of another dtype than the space.
    low, high = (np.asarray(bound).astype(space.dtype) for bound in (space.low, space.high))
    return spaces.Box(low, high, shape=tuple(space.shape), dtype=space.dtype)


def _make_dict(space: Any) -> spaces.Dict:
    # A list of pairs keeps the order that the user's space has.
    return spaces.Dict([(key, convert_space(sub)) for key, sub in dict(space.spaces).items()])


def _make_discrete(space: Any) -> spaces.Discrete:
    made = spaces.Discrete(int(space.n), start=int(getattr(space, "start", 0)))
    made.n = int(space.n)  # type: ignore[assignment]  # as the old gym has it, see _known_inside
    return made


def _make_multi_discrete(space: Any) -> spaces.MultiDiscrete:
    start = getattr(space, "start", None)
    return spaces.MultiDiscrete(space.nvec, dtype=space.dtype, start=start)


def _make_text(space: Any) -> spaces.Text:
    return spaces.Text(space.max_length, min_length=space.min_length, charset="".join(space.characters))


_MAKERS: dict[str, Callable[[Any], spaces.Space[Any]]] = {
    "Box": _make_box,
    "Discrete": _make_discrete,
    "MultiDiscrete": _make_multi_discrete,
    "MultiBinary": lambda space: spaces.MultiBinary(space.n),
    "Tuple": lambda space: spaces.Tuple([convert_space(sub) for sub in space.spaces]),
    "Dict": _make_dict,
    "Text": _make_text,
    "Sequence": lambda space: spaces.Sequence(convert_space(space.feature_space)),
    "Space": lambda space: spaces.Space(getattr(space, "shape", None), getattr(space, "dtype", None)),
}
