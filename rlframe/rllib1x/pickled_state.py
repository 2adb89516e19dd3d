"""Reads RLlib 1.x's pickled checkpoints as data, without executing anything that is in them.

They hold the code of policies beside their weights. What a pickle names is never imported and never called: an object
of a class is its name and its attributes (`Unread`), whatever the class. `plain` gives the arrays, numbers and dicts in
it, and refuses what they are not made of, naming it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from rlframe.offline.array_pickles import PickledArray, PickleMachine, array_function
from rlframe.utils.errors import DataError

#: How deep parts may lie in one another, and how many there may be: a few bytes can ask for any number.
_MOST_DEEP, _MOST_PARTS = 20, 1_000_000
#: A pickle can name its own bytes many times; no array of a checkpoint is there more often than this.
_MOST_COPIES = 4


class Unread:
    """An object, a class or a function that a pickle names.

    Attributes:
        name: Its path, or that of what was to make it.
        state: The attributes that it was to get; None without.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.state: Any = None

    def build(self, state: Any) -> None:
        """Takes the attributes."""
        self.state = state

    def __call__(self, *_: Any) -> Unread:
        """Returns what the call was to make."""
        return Unread(self.name)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Takes nothing: what else the object was to hold is not read."""

    append = extend = update = lambda self, *_: None


def _listed(items: Any = (), *_: Any) -> list[Any]:
    if not isinstance(items, (list, tuple)):
        raise DataError(f"a pickle of a collection of a {type(items).__name__}")
    return list(items)


class _StateMachine(PickleMachine):
    """Runs the operations that any object is pickled with, on names in place of objects."""

    #: What stands for collections: sets and deques are lists, for members of sets are hashed.
    _COLLECTIONS: ClassVar[dict[str, Callable[..., Any]]] = {
        "collections.OrderedDict": lambda *_: {},
        "collections.defaultdict": lambda *_: {},
        "collections.deque": _listed,
        **{f"{module}.{kind}": _listed for module in ("builtins", "__builtin__") for kind in ("set", "frozenset")},
    }

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def named(self, path: str) -> Callable[..., Any]:
        """Returns what stands for a name: of arrays and collections, what makes them; else its name."""
        known = array_function(path) or self._COLLECTIONS.get(path)
        if known is not None:
            return known
        self.names.add(path)
        return Unread(path)

    def _key(self, key: Any) -> Any:
        return key if isinstance(key, Unread) else super()._key(key)

    def _do_stack_global(self, _: Any) -> None:
        module, name = self._pop(2)
        if not (isinstance(module, str) and isinstance(name, str)):
            raise DataError("a pickle with a name that is no text")
        self._stack.append(self.named(f"{module}.{name}"))

    def _do_newobj(self, _: Any) -> None:
        made_by, _arguments = self._pop(2)
        self._stack.append(Unread(made_by.name))

    def _do_newobj_ex(self, _: Any) -> None:
        made_by, _arguments, _keywords = self._pop(3)
        self._stack.append(Unread(made_by.name))

    def _do_obj(self, _: Any) -> None:
        made_by, *_arguments = self._pop_to_mark()
        self._stack.append(Unread(made_by.name))

    def _do_inst(self, argument: str) -> None:
        self._pop_to_mark()
        self._stack.append(Unread(self.named(argument.replace(" ", ".")).name))  # type: ignore[attr-defined]

    def _do_empty_set(self, _: Any) -> None:
        self._stack.append([])

    def _do_frozenset(self, _: Any) -> None:
        self._stack.append(self._pop_to_mark())

    _do_list = _do_frozenset

    def _do_additems(self, _: Any) -> None:
        values = self._pop_to_mark()
        self._stack[-1].extend(values)

    def _do_dict(self, _: Any) -> None:
        values = self._pop_to_mark()
        self._stack.append({self._key(key): value for key, value in zip(values[::2], values[1::2], strict=True)})

    def _do_pop(self, _: Any) -> None:
        self._pop(1)

    def _do_pop_mark(self, _: Any) -> None:
        self._pop_to_mark()

    def _do_dup(self, _: Any) -> None:
        self._stack.append(self._stack[-1])


def read_pickle(data: bytes) -> tuple[Any, frozenset[str]]:
    """Returns what a pickle holds, and the names in it that were not run.

    Args:
        data: The pickle, of any protocol.

    Raises:
        DataError: If it is damaged, or asks for what no checkpoint holds.
    """
    machine = _StateMachine()
    try:
        return machine.run(data), frozenset(machine.names)
    except DataError:
        raise
    except Exception as error:  # damaged pickles fail in any way
        raise DataError(f"a pickle that cannot be read ({type(error).__name__}: {error})") from error


class Plain:
    """Turns what `read_pickle` returned into arrays, numbers, text, dicts and lists.

    Args:
        size: Bytes of the pickle.
    """

    def __init__(self, size: int) -> None:
        self._parts, self._bytes = _MOST_PARTS, size * _MOST_COPIES

    def __call__(self, value: Any, place: str, depth: int = 0) -> Any:
        """Returns a part as data; tuples are lists.

        Args:
            value: The part.
            place: What it is, for the error message.
            depth: How deep it lies.

        Raises:
            DataError: If there is anything else in it, or more than a checkpoint can hold.
        """
        self._parts -= 1
        if depth > _MOST_DEEP or self._parts < 0:
            raise DataError(f"{place} holds structures within structures, wanted arrays")
        if isinstance(value, dict):
            return {key: self(part, f"{place}.{key}"[:200], depth + 1) for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [self(part, place, depth + 1) for part in value]
        if isinstance(value, PickledArray):
            return self._array(value, place)
        if isinstance(value, Unread):
            raise DataError(f"{place} is made by {value.name}, which is not run; wanted arrays, numbers and dicts")
        if value is None or isinstance(value, (bool, int, float, str, np.generic)):
            return value
        raise DataError(f"{place} is a {type(value).__name__}, wanted arrays, numbers and dicts")

    def _array(self, value: PickledArray, place: str) -> Any:
        try:
            array = value.numbers()
        except (TypeError, ValueError, AttributeError) as error:
            raise DataError(f"{place} is no array of numbers ({error})") from error
        self._bytes -= array.nbytes
        if self._bytes < 0:
            raise DataError(f"{place} and what stands before it are more bytes than the file has")
        return array


__all__ = ["Plain", "Unread", "read_pickle"]
