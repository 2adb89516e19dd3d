"""Which names the code of a program's callbacks and plans reads: what it will ask of the objects that it is given."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any

#: What a framework's policy has, and one that acts in NumPy has not.
OF_FRAMEWORKS = frozenset({
    "model", "dist_class", "device", "get_session", "learn_on_batch", "compute_gradients", "apply_gradients",
})  # fmt: skip
#: What a plan has its remote workers do that one which acts in NumPy cannot.
OF_LEARNING_WORKERS = frozenset({"AsyncGradients", "compute_gradients", "sample_and_learn"})
#: What an episode tells of what came with an action, which workers compute where it is learned from, or asked for.
OF_ACTIONS = frozenset({"last_extra_action_outs_for", "last_pi_info_for", "_agent_to_last_extra_action_outs"})
#: Hooks that remote workers do not call.
_ON_THE_DRIVER = frozenset({"on_trainer_init", "on_train_result", "on_evaluate_start", "on_evaluate_end"})


def reads_any_of(callbacks: Any, names: frozenset[str]) -> bool:
    """Returns whether a program's hooks, or functions of its own that these call, read an attribute of some name.

    It goes by names alone: an attribute of another object may be meant. Code of this package is not looked at.

    Args:
        callbacks: A callbacks instance.
        names: The names.
    """
    return code_reads_any_of([type(callbacks)], names)


def code_reads_any_of(code: Sequence[Any], names: frozenset[str]) -> bool:
    """Returns whether functions or classes of a program's read a global, or an attribute, of some name.

    Args:
        code: The functions and classes.
        names: The names.
    """
    waiting = list(code)
    seen: set[int] = set()
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        read = value.co_names if isinstance(value, CodeType) else ()
        if not names.isdisjoint(read):
            return True
        waiting += _inside(value)
    return False


def _inside(value: Any) -> Iterator[Any]:
    """Yields what a class, a function, its code, or a list of these consists of, or calls by its name."""
    if isinstance(value, type):
        for base in value.__mro__[:-1]:
            yield from (item for name, item in vars(base).items() if name not in _ON_THE_DRIVER)
    elif isinstance(value, FunctionType):
        yield from map(_content, value.__closure__ or ())
        if not str(value.__module__).startswith("rlframe."):
            yield value.__code__
            yield from (_own(value, name) for name in value.__code__.co_names)
    elif isinstance(value, CodeType):
        yield from value.co_consts
    elif isinstance(value, functools.partial):
        yield value.func
    elif isinstance(value, (staticmethod, classmethod)):
        yield value.__func__
    elif isinstance(value, (list, tuple)):
        yield from value


def _own(function: FunctionType, name: str) -> Any:
    """Returns what a function calls by a global name, where it is of the same module."""
    found = function.__globals__.get(name)
    return found if getattr(found, "__module__", None) == function.__module__ else None


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing yet
        return None
