"""Rows a second of shuffled batches: Parquet on disk, read by `EpisodeReader`, and torch's DataLoader over memory.

python benchmarks/offline_readers.py [rows]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from rlframe.data.sample_batch import SampleBatch
from rlframe.offline import EpisodeReader, IOContext, ParquetWriter

BATCH, EPISODE, HELD = 256, 1000, 100_000


def make_rows(rows: int) -> SampleBatch:
    """Returns rows of HalfCheetah's shapes, of random numbers."""
    rng = np.random.default_rng(0)
    number = np.arange(rows)
    last = number % EPISODE == EPISODE - 1
    columns: dict[str, Any] = {
        "obs": rng.standard_normal((rows, 17), dtype=np.float32),
        "new_obs": rng.standard_normal((rows, 17), dtype=np.float32),
        "actions": rng.random((rows, 6), dtype=np.float32),
        "rewards": rng.random(rows, dtype=np.float32),
        "terminateds": np.zeros(rows, bool), "truncateds": last, "dones": last, "eps_id": number // EPISODE,
    }  # fmt: skip
    return SampleBatch(columns)


def rate(batches: Callable[[], Iterable[int]]) -> float:
    """Returns the rows a second of one pass, whose batches have the lengths that are yielded."""
    begun = time.perf_counter()
    return sum(batches()) / (time.perf_counter() - begun)


def main(rows: int) -> None:
    """Measures both by turns, three times, and prints the best of each with their ratio."""
    made = make_rows(rows)
    dataset = torch.utils.data.TensorDataset(*(torch.from_numpy(column) for column in made.values()))
    loader = torch.utils.data.DataLoader(dataset, BATCH, shuffle=True)
    with tempfile.TemporaryDirectory() as directory:
        writer = ParquetWriter(directory)
        for start in range(0, rows, 16 * EPISODE):
            writer.write(made[start : start + 16 * EPISODE])
        writer.close()
        settings = {"shuffle_rows": HELD, "batch_rows": BATCH}
        reader = EpisodeReader(directory, IOContext(config={"seed": 0, "input_config": settings}))

        def from_disk() -> Iterable[int]:
            given = 0
            while given < rows:
                count = reader.next().count
                given += count
                yield count

        ours = theirs = 0.0
        for _ in range(3):
            ours = max(ours, rate(from_disk))
            theirs = max(theirs, rate(lambda: (len(batch[0]) for batch in loader)))
    print(
        f"EpisodeReader (disk) {ours:,.0f} rows/s, DataLoader (memory) {theirs:,.0f} rows/s, ratio {ours / theirs:.2f}"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)
