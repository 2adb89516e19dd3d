"""RLlib's `input: "dataset"`: data that `input_config` describes, or that a function of it loads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.offline.episode_reader import episode_reader
from rlframe.offline.input_reader import InputReader
from rlframe.offline.io_context import IOContext
from rlframe.offline.json_format import batch_of_row
from rlframe.offline.json_reader import JsonReader
from rlframe.offline.preparing import PolicyRows
from rlframe.utils.errors import ConfigError, DataError

_FORMATS = ("json", "parquet")


def dataset_reader(ioctx: IOContext) -> InputReader:
    """Returns the reader that `input_config` describes for `input: "dataset"`.

    Its keys are `format` ("json" or "parquet") with `path` (or `paths`), or `loader_fn`, a function that returns a
    dataset of Ray, or anything else to go through: of batches, or of rows (dicts of one step).

    Raises:
        ConfigError: If it describes none.
    """
    given = ioctx.input_config
    loader, paths = given.get("loader_fn"), given.get("path", given.get("paths"))
    if loader is not None:
        if not callable(loader):
            raise ConfigError(f"input_config.loader_fn: got {loader!r}, wanted a function that returns a dataset")
        return LoadedReader(loader, ioctx)
    kind = given.get("format")
    if kind not in _FORMATS or not paths:
        raise ConfigError(
            f'input="dataset": got the input_config {given}, wanted format ({" or ".join(_FORMATS)}) and path, or '
            "loader_fn"
        )
    return JsonReader(paths, ioctx) if kind == "json" else episode_reader(paths, ioctx)


class LoadedReader(InputReader):
    """Gives the batches of a dataset that a function loads, again and again.

    Each worker reads every so manyth item. Its place is the number of items that were read.

    Args:
        loader: Returns the dataset: it has `iter_rows()`, as Ray's have, or can be iterated over anew. Its items are
            batches as RLlib stores them (dicts with "type"), SampleBatches, or dicts of one step, of which
            `rollout_fragment_length` make a batch.
        ioctx: The worker's context.
    """

    def __init__(self, loader: Any, ioctx: IOContext) -> None:
        self._dataset = loader()
        self._prepare = PolicyRows(ioctx)
        self._rows = int(ioctx.config.rollout_fragment_length)
        self._worker = max(ioctx.worker_index - 1, 0), max(int(ioctx.config.num_workers), 1)
        self._items = self._pass()
        self._read = 0

    def next(self) -> SampleBatch | MultiAgentBatch:
        """Returns the next batch.

        Raises:
            DataError: If an item is none, or there are no items.
        """
        item, steps = self._next_item(), []
        if isinstance(item, (SampleBatch, MultiAgentBatch)):
            return self._prepare(item.copy())
        while isinstance(item, Mapping) and "type" not in item:
            steps.append(item)
            if len(steps) == self._rows:
                columns = {name: np.stack([np.asarray(step[name]) for step in steps]) for name in steps[0]}
                return self._prepare(SampleBatch(columns))
            item = self._next_item()
        if not isinstance(item, Mapping):
            raise DataError(f"input_config.loader_fn: got the item {item!r}, wanted a batch, or a dict of one step")
        return self._prepare(batch_of_row(item))

    def get_state(self) -> dict[str, Any]:
        """Returns how many items were read."""
        return {"read": self._read}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Reads as many items again, and goes on behind them."""
        self._items, self._read = self._pass(), 0
        while self._read < int(state["read"]):
            self._next_item()

    def _next_item(self) -> Any:
        for _ in range(2):
            for item in self._items:
                self._read += 1
                return item
            self._items = self._pass()
        raise DataError("input_config.loader_fn: got a dataset without items for this worker")

    def _pass(self) -> Iterator[Any]:
        dataset = self._dataset
        items: Iterable[Any] = dataset.iter_rows() if hasattr(dataset, "iter_rows") else dataset
        first, workers = self._worker
        return (item for number, item in enumerate(items) if number % workers == first)


__all__ = ["LoadedReader", "dataset_reader"]
