"""Writes batches of experience to files of JSON, one per line."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Collection
from typing import IO, Any

from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.offline.io_context import IOContext
from rlframe.offline.json_format import saying, to_line
from rlframe.offline.output_writer import OutputWriter


class JsonWriter(OutputWriter):
    """Writes each batch as a line, into `output-<time>_worker-<index>_<number>.json`.

    A line is in the file when `write` returns; of a process that is killed, the last line may be cut short. Stores
    behind addresses take whole files: there one is ended every minute, and at most that minute's batches are lost.

    Args:
        path: Directory, which is made if there is none; or an address such as `s3://bucket/folder`.
        ioctx: The worker's context.
        max_file_size: Size at which a new file is begun, bytes.
        compress_columns: Columns that are packed.
        remote_interval_s: Age at which a file behind an address is ended by the next batch, s.
        actions_normalized: Whether actions are as policies choose them, which a column of each line says; by default
            what the context's config says, and nothing without a worker.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        ioctx: IOContext | None = None,
        max_file_size: int = 64 * 1024 * 1024,
        compress_columns: Collection[str] = frozenset(("obs", "new_obs")),
        remote_interval_s: float = 60.0,
        actions_normalized: bool | None = None,
    ) -> None:
        self.ioctx = ioctx or IOContext()
        self._normalized = normalized_by(self.ioctx) if actions_normalized is None else actions_normalized
        self.path = output_directory(path)
        self._interval_s = remote_interval_s if "://" in self.path else float("inf")
        self._begun_s = 0.0
        self.max_file_size = max_file_size
        self.compress_columns = frozenset(compress_columns)
        self.file_index = 0
        self.bytes_written = 0
        self.cur_file: IO[Any] | None = None

    def write(self, sample_batch: SampleBatch | MultiAgentBatch) -> None:
        """Appends a batch.

        Raises:
            DataError: If it holds what JSON has no form for; nothing is written then.
        """
        if not sample_batch.count:
            return
        told = sample_batch if self._normalized is None else saying(sample_batch, self._normalized)
        line = f"{to_line(told, self.compress_columns)}\n".encode()
        if self.cur_file is None:
            self.cur_file, self._begun_s = open_output(self, "json"), time.monotonic()
        self.cur_file.write(line)
        self.cur_file.flush()
        self.bytes_written += len(line)
        if self.bytes_written >= self.max_file_size or time.monotonic() - self._begun_s >= self._interval_s:
            self.close()

    def close(self) -> None:
        """Ends the file that is being written; the next batch begins another."""
        if self.cur_file is not None:
            self.cur_file.close()
            self.cur_file = None
        self.bytes_written = 0


def normalized_by(ioctx: IOContext) -> bool | None:
    """Returns whether the actions that a context's worker samples are as policies choose them; None without one."""
    return None if ioctx.worker is None else bool(ioctx.config.normalize_actions)


def output_directory(path: str | os.PathLike[str]) -> str:
    """Returns the directory or address that is written into; a directory is made if there is none."""
    text = os.fspath(path)
    if "://" in text:
        return text.rstrip("/")
    text = os.path.abspath(os.path.expanduser(text))
    os.makedirs(text, exist_ok=True)
    return text


def open_output(writer: Any, ending: str) -> IO[Any]:
    """Opens the next file of a writer.

    Args:
        writer: Its `path`, `ioctx` and `file_index`, which is raised, make the file's name.
        ending: What the name ends with, without a dot; ".part" at its end is left out when the file is whole.
    """
    stamp = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    while True:
        name = f"output-{stamp}_worker-{writer.ioctx.worker_index}_{writer.file_index}.{ending}"
        writer.file_index += 1
        if "://" in writer.path:
            import fsspec  # type: ignore[import-untyped]

            address = f"{writer.path}/{name}"
            system, path = fsspec.core.url_to_fs(address)
            if system.exists(path) or system.exists(path.removesuffix(".part")):
                continue  # it is of a writer that began in the same second
            opened: IO[Any] = system.open(path, "wb")
            return opened
        place = os.path.join(writer.path, name)
        if os.path.exists(place.removesuffix(".part")):
            continue
        try:
            return open(place, "xb")
        except FileExistsError:
            continue


__all__ = ["JsonWriter", "normalized_by", "open_output", "output_directory"]
