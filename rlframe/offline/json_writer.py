"""Writes batches of experience to files of JSON, one per line."""

from __future__ import annotations

import datetime
import os
from collections.abc import Collection
from typing import IO, Any

from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.offline.io_context import IOContext
from rlframe.offline.json_format import to_line
from rlframe.offline.output_writer import OutputWriter


class JsonWriter(OutputWriter):
    """Writes each batch as a line, into `output-<time>_worker-<index>_<number>.json`.

    A line is in the file when `write` returns; of a process that is killed, the last line may be cut short.

    Args:
        path: Directory, which is made if there is none; or an address such as `s3://bucket/folder`.
        ioctx: The worker's context.
        max_file_size: Size at which a new file is begun, bytes.
        compress_columns: Columns that are packed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        ioctx: IOContext | None = None,
        max_file_size: int = 64 * 1024 * 1024,
        compress_columns: Collection[str] = frozenset(("obs", "new_obs")),
    ) -> None:
        self.ioctx = ioctx or IOContext()
        self.path = os.fspath(path)
        self._remote = "://" in self.path
        if not self._remote:
            self.path = os.path.abspath(os.path.expanduser(self.path))
            os.makedirs(self.path, exist_ok=True)
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
        line = f"{to_line(sample_batch, self.compress_columns)}\n".encode()
        if self.cur_file is None or self.bytes_written >= self.max_file_size:
            self.close()
            self.cur_file = self._open_next()
        self.cur_file.write(line)
        self.cur_file.flush()
        self.bytes_written += len(line)

    def close(self) -> None:
        """Ends the file that is being written; the next batch begins another."""
        if self.cur_file is not None:
            self.cur_file.close()
            self.cur_file = None
        self.bytes_written = 0

    def _open_next(self) -> IO[Any]:
        stamp = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
        while True:
            name = f"output-{stamp}_worker-{self.ioctx.worker_index}_{self.file_index}.json"
            self.file_index += 1
            if self._remote:
                import fsspec  # type: ignore[import-untyped]

                opened: IO[Any] = fsspec.open(f"{self.path.rstrip('/')}/{name}", "wb").open()
                return opened
            try:
                return open(os.path.join(self.path, name), "xb")
            except FileExistsError:  # of a writer that began in the same second
                continue


__all__ = ["JsonWriter"]
