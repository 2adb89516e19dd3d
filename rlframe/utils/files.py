"""Reading files that somebody else may have made: regular ones, of bounded size, and JSON of bounded depth."""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

#: Bytes of a file of settings or descriptions, and of a line of results, beyond which it is not read.
MOST_TEXT_BYTES = 1 << 24
#: How deep JSON may nest; Python's own functions give up at about a thousand.
MOST_DEPTH = 100


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """Returns a file opened for reading.

    Raises:
        OSError: If it cannot be opened, or is a pipe, a device or a directory: these can block, or have no end.
    """
    # Opening a pipe waits for who writes into it, unless told otherwise.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file", os.fspath(path))
    return os.fdopen(descriptor, "rb")


def read_bytes(path: str | os.PathLike[str], most: int = MOST_TEXT_BYTES) -> bytes:
    """Returns what a regular file holds.

    Args:
        path: The file.
        most: Bytes beyond which it is not read.

    Raises:
        OSError: If it cannot be read, is no regular file, or is larger.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(most + 1) if size <= most else b""
    if size > most or len(data) > most:
        raise OSError(errno.EFBIG, f"it has {size:,} bytes, wanted at most {most:,}", os.fspath(path))
    return data


def read_text(path: str | os.PathLike[str], most: int = MOST_TEXT_BYTES) -> str:
    """Returns the text of a regular file in UTF-8, without the mark that editors on Windows begin it with.

    Raises:
        OSError: As `read_bytes`.
        ValueError: If it is no UTF-8.
    """
    return read_bytes(path, most).decode("utf-8-sig")


def parse_json(data: str | bytes, *, infinite: bool = False) -> Any:
    """Returns what JSON text says, if another program can be told it: finite numbers, whole characters, some depth.

    Args:
        data: The text.
        infinite: Whether `Infinity` is a number, as Python writes it: limits in configs can be.

    Raises:
        ValueError: If it is no JSON, or has more than that.
    """

    def constant(name: str) -> float:
        if name == "NaN" or not infinite:
            raise ValueError(f"it has {name}, which JSON has not")
        return float(name)

    try:
        parsed = json.loads(data, parse_constant=constant, parse_float=_finite)
    except RecursionError:
        raise ValueError(f"it nests deeper than {MOST_DEPTH} levels") from None
    check_plain(parsed)
    return parsed


def read_json(path: str | os.PathLike[str], most: int = MOST_TEXT_BYTES, *, infinite: bool = False) -> Any:
    """Returns what a JSON file says.

    Raises:
        OSError: As `read_bytes`.
        ValueError: As `parse_json`.
    """
    return parse_json(read_bytes(path, most), infinite=infinite)


def read_lines(path: str | os.PathLike[str], most: int = MOST_TEXT_BYTES) -> Iterator[bytes]:
    """Yields the lines of a regular file one by one, up to the first that is longer than `most` bytes.

    Raises:
        OSError: If it cannot be read, or is no regular file.
    """
    with open_regular(path) as file:
        while line := file.readline(most + 1):
            if len(line) > most:
                return
            yield line


def check_plain(parsed: Any) -> None:
    """Raises ValueError where parsed JSON or YAML nests too deep, or has characters that cannot be written again."""
    level = [parsed]
    for _ in range(MOST_DEPTH):
        inner: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                inner += [*value.keys(), *value.values()]
            elif isinstance(value, list):
                inner += value
            elif isinstance(value, str):
                _check_characters(value)
        if not inner:
            return
        level = inner
    raise ValueError(f"it nests deeper than {MOST_DEPTH} levels")


def is_inside(path: Path, directory: Path) -> bool:
    """Returns whether a path, with all links followed, lies in a directory."""
    # Unlike Path.resolve, realpath takes links that lead to themselves; opening them fails then.
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(directory))


def _check_characters(text: str) -> None:
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(f"it has half a character (a lone surrogate) in {text[:40]!a}") from error


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"it has the number {text[:40]}, which is beyond what a float holds")
    return number
