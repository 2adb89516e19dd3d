"""Tracebacks without the frames in which a plan hands an item from one operator to the next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from ray.tune.trainable import trainable

from rlframe.execution.plan import local_iterator, nodes, rare_nodes
from rlframe.trainer import recovery

#: Files whose frames say nothing of what went wrong, but that the plan was running.
_OF_PLANS = (local_iterator, nodes, rare_nodes)
_MACHINERY = frozenset(str(module.__file__) for module in (*_OF_PLANS, trainable, recovery))
#: What stands between `Trainer.train` and the plan.
_TRAINER, _STEPS = (
    str(Path(__file__).with_name("trainer.py")),
    ("step", "step_attempt", "_next_result"),
)


def shorten_traceback(error: BaseException) -> None:
    """Takes the plan's own frames out of the traceback of an error, and out of those of its causes.

    What raised stays in any case: the last frame of each traceback, the operators', and all of users' code.
    """
    for each in _with_causes(error):
        each.__traceback__ = _without_machinery(each.__traceback__)


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            yield each
            waiting += [each.__cause__, each.__context__]


def _without_machinery(head: TracebackType | None) -> TracebackType | None:
    """Returns a traceback whose entries in machinery are left out, but for its last."""
    while head is not None and head.tb_next is not None and _is_machinery(head):
        head = head.tb_next
    entry = head
    while entry is not None:
        after = entry.tb_next
        while after is not None and after.tb_next is not None and _is_machinery(after):
            after = after.tb_next
        entry.tb_next = after
        entry = after
    return head


def _is_machinery(entry: TracebackType) -> bool:
    code = entry.tb_frame.f_code
    return code.co_filename in _MACHINERY or (code.co_filename == _TRAINER and code.co_name in _STEPS)
