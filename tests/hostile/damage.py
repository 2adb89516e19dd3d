"""Damage to files and to the JSON in them, each kind once, and drawn at random places from a seed."""

import copy
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

#: What stands where something else is wanted.
WRONG: tuple[Any, ...] = (
    None, True, -1, 10**30, 1e308, "x", "os.system", [], {}, [[]], {"type": "hostile_bait:boom"}, "\ud800", "é" * 5000,
)  # fmt: skip
#: Texts that are no JSON that anybody wrote.
TEXTS = {
    "empty": b"",
    "deep list": b"[" * 100_000, "deep object": b'{"a":' * 100_000, "nearly deep": b"[" * 400 + b"]" * 400,
    "number": b"5", "list": b"[1]", "null": b"null", "text": b'"x"', "no JSON": b"{", "no UTF-8": b"\xff\xfe{}",
    "NaN": b'{"a": NaN}', "long number": b'{"a": ' + b"9" * 5000 + b"}", "surrogate": b'{"\\ud800": "\\udfff"}',
    "zeros": b"\0" * 4096,
}  # fmt: skip


def texts(path: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yields ways to replace a file's content."""
    for name, data in TEXTS.items():
        yield name, lambda data=data: path.write_bytes(data)  # type: ignore[misc]


def kinds(path: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yields ways to put something in a file's place that is no such file."""

    def anew(make: Callable[[], Any]) -> Callable[[], Any]:
        def act() -> None:
            path.unlink()
            make()

        return act

    yield "missing", path.unlink
    yield "directory", anew(path.mkdir)
    yield "pipe", anew(lambda: os.mkfifo(path))
    yield "link to zeros without end", anew(lambda: path.symlink_to("/dev/zero"))
    yield "link to a terminal", anew(lambda: path.symlink_to("/dev/tty"))
    yield "link to itself", anew(lambda: path.symlink_to(path.name))
    yield "link outside", anew(lambda: path.symlink_to("/etc/passwd"))
    yield "link into memory", anew(lambda: path.symlink_to("/proc/self/environ"))
    yield "holes", lambda: os.truncate(path, 1 << 42)
    yield "a hole behind it", lambda: os.truncate(path, path.stat().st_size + (1 << 36))


def cuts(path: Path, size: int, rng: random.Random, count: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yields truncations and single bits turned over, in a file of `size` bytes."""
    for _ in range(count):
        end, bit = rng.randrange(size), rng.randrange(size * 8)
        yield f"cut at {end}", lambda end=end: os.truncate(path, end)  # type: ignore[misc]
        yield f"bit {bit} turned", lambda bit=bit: _flip(path, bit)  # type: ignore[misc]


def _flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    bit %= 8 * len(data)  # the file may be a little shorter than the one the bit was drawn from
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def wrong_values(
    content: Any, rng: random.Random, count: int, below: tuple[Any, ...] = ()
) -> Iterator[tuple[str, Any]]:
    """Yields copies of a JSON value with one place changed: another value, a key less, a key more.

    Args:
        content: The value.
        rng: Draws places.
        count: How many.
        below: Where places are drawn, as a path of keys.
    """
    start = content
    for key in below:
        start = start[key]
    places = [(*below, *place) for place in _places(start) if place]
    for _ in range(count):
        place = rng.choice(places)
        wrong = rng.choice([*WRONG, _GONE, _MORE])
        changed = copy.deepcopy(content)
        holder = changed
        for key in place[:-1]:
            holder = holder[key]
        if wrong is _GONE:
            del holder[place[-1]]
        elif wrong is _MORE and isinstance(holder, dict):
            holder["surplus"] = {"type": "os.system"}
        else:
            holder[place[-1]] = None if wrong is _MORE else copy.deepcopy(wrong)
        word = "deleted" if wrong is _GONE else "more" if wrong is _MORE else repr(wrong)[:40]
        yield f"{'.'.join(map(str, place))} = {word}", changed


_GONE, _MORE = object(), object()


def _places(value: Any) -> Iterator[tuple[Any, ...]]:
    yield ()
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for number, (key, inner) in enumerate(items):
        if isinstance(value, list) and number >= 2:  # of lists, the rest is the same
            return
        for place in _places(inner):
            yield (key, *place)


def write_json(path: Path, content: Any) -> None:
    """Writes JSON that may hold half characters, as a file of somebody's can."""
    path.write_text(json.dumps(content), encoding="utf-8")
