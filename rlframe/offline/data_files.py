"""Finds and opens files of experience: paths, globs, directories, zip files, and addresses that fsspec knows."""

from __future__ import annotations

import glob
import os
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from rlframe.utils.errors import ConfigError, DataError

#: Files that are data, whatever else their names could mean: lines of JSON, and the formats of whole episodes.
JSON_ENDINGS = (".json", ".zip")
EPISODE_ENDINGS = (".parquet", ".npz", ".h5", ".hdf5", ".csv")
DATA_ENDINGS = (*JSON_ENDINGS, *EPISODE_ENDINGS)
#: What a table's columns mean is beside it, and is no data.
_SCHEMA_ENDING = ".schema.json"
#: What a trainer writes of its results into the directory that `output="logdir"` writes to.
_OF_RUNS = frozenset({"params.json", "result.json", "progress.csv"})
#: Between the path of a zip file and the name of a file in it.
_IN_ZIP = "!"
#: Bytes at the beginning of a file by which it is known again.
_HEAD = 4096


def find_files(inputs: Any) -> list[str]:
    """Returns the files that paths, globs, directories and zip files stand for, those of each by their names' order.

    Args:
        inputs: One of these, or a list. A directory stands for the files of data right in it; neither it nor a glob
            stands for those that a trainer writes of its results.

    Raises:
        ConfigError: If one of them stands for no file.
    """
    given = [inputs] if isinstance(inputs, (str, os.PathLike)) else list(inputs)
    found: list[str] = []
    for one in given:
        if not isinstance(one, (str, os.PathLike)):
            raise ConfigError(f"input: got {one!r} among the paths, wanted text")
        matches = _matches(os.fspath(one))
        if not matches:
            raise ConfigError(
                f"input={os.fspath(one)!r}: found no file there, wanted a file of data ({', '.join(DATA_ENDINGS)}), a "
                "directory of such or a glob; a name has to be given to register_input first"
            )
        found += matches
    if not found:
        raise ConfigError("input: got no path, wanted files of data")
    return found


def identities(files: list[str]) -> list[str]:
    """Returns what files are known again by, wherever they lie: each one's name, and a sum of its beginning."""
    known = []
    for path in files:
        with opened(path) as file:
            known.append(f"{os.path.basename(path)}:{zlib.crc32(file.readline(_HEAD)):08x}")
    return known


@contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """A context with a file's bytes; `path` is one that `find_files` returned."""
    if "://" in path:
        import fsspec  # type: ignore[import-untyped]

        with fsspec.open(path, "rb") as remote:
            yield remote
        return
    archive_path, mark, name = path.rpartition(f".zip{_IN_ZIP}")
    if not mark:
        with open(path, "rb") as file:
            yield file
        return
    with zipfile.ZipFile(f"{archive_path}.zip") as archive, archive.open(name) as member:
        yield member


def _matches(path: str) -> list[str]:
    if "://" in path:
        return _remote_matches(path)
    path = os.path.abspath(os.path.expanduser(path))
    if os.path.isdir(path):
        names = [os.path.join(path, name) for ending in DATA_ENDINGS for name in sorted(os.listdir(path), key=_natural)
                 if name.endswith(ending) and not name.endswith(_SCHEMA_ENDING)]  # fmt: skip
    elif os.path.isfile(path):
        return _members(path)
    else:
        names = sorted(glob.glob(path), key=_natural)
    return [member for name in names if os.path.basename(name) not in _OF_RUNS for member in _members(name)]


def _remote_matches(address: str) -> list[str]:
    import fsspec

    system, path = fsspec.core.url_to_fs(address)
    if glob.has_magic(path):
        names = sorted(system.glob(path), key=_natural)
    elif system.isdir(path):
        listed = sorted(system.ls(path, detail=False), key=_natural)
        names = [name for ending in DATA_ENDINGS for name in listed
                 if name.endswith(ending) and not name.endswith(_SCHEMA_ENDING)]  # fmt: skip
    else:
        names = [path] if system.exists(path) else []
    return [system.unstrip_protocol(name) for name in names]


def _natural(name: str) -> list[tuple[int, str]]:
    """Returns a key by which names are sorted as people count: a writer's tenth file stands behind its second."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _members(path: str) -> list[str]:
    if not path.endswith(".zip"):
        return [path]
    try:
        with zipfile.ZipFile(path) as archive:
            return [f"{path}{_IN_ZIP}{name}" for name in sorted(archive.namelist()) if name.endswith(".json")]
    except zipfile.BadZipFile as error:
        raise DataError(f"{path}: got no zip file, or one that is cut short ({error}); write it again") from error


__all__ = ["DATA_ENDINGS", "EPISODE_ENDINGS", "JSON_ENDINGS", "find_files", "identities", "opened"]
