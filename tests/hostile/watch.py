"""Runs one attack and says how it ended: whether code ran, an error had no sentence, or it did not come back."""

import contextlib
import signal
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlframe.utils.errors import (
    CheckpointError,
    ConfigError,
    EnvError,
    NonFiniteError,
    UnsupportedSpaceException,
    WorkerError,
)

#: What users' programs and the command line answer with one sentence.
SENTENCES = (CheckpointError, ConfigError, EnvError, NonFiniteError, UnsupportedSpaceException, WorkerError)
#: Seconds after which an attack counts as a hang. The slowest honest answer takes one.
PATIENCE_S = 20
#: What only a name that was called or imported brings about.
_EVENTS = frozenset({"os.system", "os.exec", "os.posix_spawn", "os.fork", "pty.spawn", "webbrowser.open"})
_SIDE_EFFECTS = frozenset({"antigravity", "this", "turtledemo", "hostile_bait", "idlelib"})
_HARMLESS_PROGRAMS = frozenset({"uname", "ldconfig", "fc-list"})

BAIT = """
import hostile_ran
hostile_ran.ran.append("imported hostile_bait")
from rlframe.exploration import Random
from rlframe.utils.schedules import ConstantSchedule
import gymnasium

def boom(*args, **kwargs):
    hostile_ran.ran.append("called hostile_bait.boom")

class Exploration(Random):
    def __init__(self, *args, **kwargs):
        boom()

class Schedule(ConstantSchedule):
    def __init__(self, *args, **kwargs):
        boom()

class Env(gymnasium.Env):
    def __init__(self, *args, **kwargs):
        boom()
"""


class Hang(BaseException):
    """An attack did not come back in time. No code under test catches it."""


@dataclass
class Tally:
    """How attacks ended.

    Attributes:
        counts: By class of attack, how many ended in which way.
        bad: What must not be, in words.
    """

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    bad: list[str] = field(default_factory=list)

    def add(self, kind: str, name: str, ends: str, detail: str = "") -> None:
        """Counts one attack."""
        self.counts.setdefault(kind, Counter())[ends] += 1
        if ends not in ("refused", "harmless"):
            self.bad.append(f"{kind}: {name}: {ends}: {detail}")


_ran: list[str] = []
_armed = [False]


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if not _armed[0]:
        return
    starts = event == "subprocess.Popen" and Path(str(args[0])).name not in _HARMLESS_PROGRAMS
    if starts or event in _EVENTS:
        _ran.append(f"{event}{args!r}"[:200])
    elif event == "import" and str(args[0]).partition(".")[0] in _SIDE_EFFECTS:
        _ran.append(f"import {args[0]}")


@contextlib.contextmanager
def watching(directory: Path) -> Iterator[None]:
    """A context in which attacks can be seen: the bait can be imported, and what runs is recorded."""
    (directory / "hostile_bait.py").write_text(BAIT)
    recorder = types.ModuleType("hostile_ran")
    recorder.ran = _ran  # type: ignore[attr-defined]
    sys.modules["hostile_ran"] = recorder
    sys.path.insert(0, str(directory))
    if not _installed:
        sys.addaudithook(_hook)
        _installed.append(True)
    before = {number: signal.signal(number, _on_alarm) for number in (signal.SIGPROF, signal.SIGALRM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        sys.path.remove(str(directory))
        del sys.modules["hostile_ran"]


_installed: list[bool] = []


def _on_alarm(*_: Any) -> None:
    raise Hang


def attack(act: Callable[[], Any], *, may_import: bool = False) -> tuple[str, str]:
    """Returns how an attack ended: "harmless", "refused", "executed", "traceback" or "hang"; and what was said.

    Args:
        act: The attack.
        may_import: Whether names may be imported, as those of a user's own; they may still not be called.
    """
    _ran.clear()
    sys.modules.pop("hostile_bait", None)
    _armed[0] = True
    # What computes is held to its own time: others use the machine as well. What only waits uses none.
    signal.setitimer(signal.ITIMER_PROF, PATIENCE_S)
    signal.setitimer(signal.ITIMER_REAL, 10 * PATIENCE_S)
    try:
        act()
        ends, said = "harmless", ""
    except SENTENCES as error:
        ends, said = "refused", str(error)
    except Hang:
        ends, said = "hang", f"more than {PATIENCE_S} s"
    except Exception as error:  # anything else is what a user must not see
        ends, said = "traceback", _last_frames(error)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _armed[0] = False
    ran = [what for what in _ran if not (may_import and what.startswith("import"))]
    return ("executed", f"{ran} ({ends} {said})") if ran else (ends, said)


def _last_frames(error: Exception) -> str:
    import traceback

    frames = traceback.extract_tb(error.__traceback__)[-3:]
    places = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))
    return f"{type(error).__name__}: {str(error)[:200]} at {places}"
