"""Replay buffers: time per call, side by side with cpprb in one process, and memory per transition.

    python benchmarks/replay_buffer.py [--capacity 1000000] [--rounds 31] [--fan-outs] [--no-memory]

Times are of the CPU (one thread), medians over rounds that alternate between the two: a busy machine then slows both
alike, and only through its caches. cpprb is left out where it is not installed.
"""

# ruff: noqa: E402 - the libraries read the number of threads when they are imported

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path
from time import thread_time
from typing import Any

import numpy as np

from rlframe.data.sample_batch import SampleBatch
from rlframe.replay.per_policy import LocalReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer
from rlframe.replay.prioritized_buffer import SumTree

ALPHA, BETA = 0.6, 0.4
EPISODE = 25  # mean length, steps
IMAGE = (84, 84, 4)

rng = np.random.default_rng(0)


def make_fragments(count: int, rows: int, shape: tuple[int, ...] = (4,), dtype: Any = np.float32) -> list[SampleBatch]:
    """Returns fragments of one environment's episodes, each going on where the one before stopped."""
    fragments, episode, t = [], 0, 0
    last = rng.integers(0, 255, shape).astype(dtype)
    for _ in range(count):
        frames = rng.integers(0, 255, (rows + 1, *shape)).astype(dtype)
        frames[0] = last
        last = frames[-1]
        terminateds = np.zeros(rows, bool)
        terminateds[-1] = ends = t + rows >= EPISODE
        fragments.append(
            SampleBatch(
                obs=frames[:-1],
                new_obs=frames[1:],
                actions=rng.integers(0, 2, rows),
                rewards=np.ones(rows, np.float32),
                discounts=np.full(rows, 0.99, np.float32),
                terminateds=terminateds,
                truncateds=np.zeros(rows, bool),
                eps_id=np.full(rows, episode),
                t=np.arange(t, t + rows),
            )
        )
        episode, t = (episode + 1, 0) if ends else (episode, t + rows)
    return fragments


def fill(buffer: ReplayBuffer, rows: int = 10_000) -> None:
    """Fills a buffer; priorities, where there are any, become uniformly distributed numbers."""
    while len(buffer) < buffer.capacity:
        buffer.add(make_fragments(1, rows)[0])
    if isinstance(buffer, PrioritizedReplayBuffer):
        buffer.update_priorities(np.arange(buffer.capacity), rng.random(buffer.capacity) + 1e-6)


def fill_cpprb(capacity: int, rows: int = 10_000) -> Any:
    """Returns a full prioritised buffer of cpprb with the same columns, or None where it is not installed."""
    try:
        import cpprb
    except ImportError:
        return None
    columns = {
        "obs": {"shape": 4, "dtype": np.float32},
        "next_obs": {"shape": 4, "dtype": np.float32},
        "act": {"dtype": np.int64},
        "rew": {},
        "discount": {},
        "done": {"dtype": bool},
        "truncated": {"dtype": bool},
    }
    buffer = cpprb.PrioritizedReplayBuffer(capacity, columns, alpha=ALPHA)
    for _ in range(0, capacity, rows):
        obs = rng.standard_normal((rows + 1, 4), dtype=np.float32)
        ones, no = np.ones(rows, np.float32), np.zeros(rows, bool)
        buffer.add(
            obs=obs[:-1], next_obs=obs[1:], act=rng.integers(0, 2, rows), rew=ones, discount=ones, done=no, truncated=no
        )
    for start in range(0, capacity, rows):
        buffer.update_priorities(np.arange(start, min(start + rows, capacity)), rng.random(min(rows, capacity - start)))
    return buffer


def microseconds(run: Callable[[], Any], calls: int) -> float:
    start = thread_time()
    for _ in range(calls):
        run()
    return (thread_time() - start) / calls * 1e6


def compare(label: str, run: Callable[[], Any], other: Callable[[], Any] | None, rounds: int, calls: int = 40) -> None:
    """Prints the median of both, and of the rounds' ratios: above 1, ours is the faster."""
    times, others = [], []
    for _ in range(rounds):
        times.append(microseconds(run, calls))
        if other is not None:
            others.append(microseconds(other, calls))
    line = f"{label:58s} {statistics.median(times):8.1f} us (best {min(times):.1f})"
    if others:
        ratio = statistics.median(theirs / ours for ours, theirs in zip(times, others, strict=True))
        line += f"   cpprb {statistics.median(others):8.1f} us (best {min(others):.1f})   {ratio:.2f} x cpprb"
    print(line, flush=True)


def compare_priorities(capacity: int, rounds: int) -> None:
    buffer = PrioritizedReplayBuffer(capacity, ALPHA, seed=0)
    fill(buffer)
    peer = fill_cpprb(capacity)
    if peer is None:
        print("cpprb is not installed: its columns are left out")
    for size in (32, 256):

        def ours(size: int = size) -> None:
            batch = buffer.sample(size, BETA)
            buffer.update_priorities(batch["batch_indexes"], rng.random(size) + 1e-6)

        def theirs(size: int = size) -> None:
            batch = peer.sample(size, beta=BETA)
            peer.update_priorities(batch["indexes"], rng.random(size) + 1e-6)

        label = f"prioritised, {capacity:,}: sample + update of {size}"
        compare(label, ours, None if peer is None else theirs, rounds)


def time_hot_paths(rounds: int, capacity: int = 50_000) -> None:
    """What DQN does for every four environment steps."""
    uniform, prioritized = ReplayBuffer(capacity, seed=0), PrioritizedReplayBuffer(capacity, ALPHA, seed=0)
    local = LocalReplayBuffer(capacity=capacity, replay_batch_size=32, seed=0)
    fragments = make_fragments(4000, 4)
    for buffer in (uniform, prioritized):
        fill(buffer)
    while len(local) < capacity:
        local.add_batch(make_fragments(1, 10_000)[0])
    turn = iter(range(10**9))

    def update() -> None:
        batch = prioritized.sample(32, BETA)
        prioritized.update_priorities(batch["batch_indexes"], rng.random(32) + 1e-6)

    def update_local() -> None:
        batch = local.replay()
        assert isinstance(batch, SampleBatch)
        local.update_priorities({"default_policy": (batch["batch_indexes"], rng.random(32))})

    work: dict[str, Callable[[], Any]] = {
        "uniform: add of 4": lambda: uniform.add(fragments[next(turn) % 4000]),
        "uniform: sample of 32, 9 columns": lambda: uniform.sample(32),
        "prioritised: add of 4": lambda: prioritized.add(fragments[next(turn) % 4000]),
        "prioritised: sample + update of 32": update,
        "LocalReplayBuffer: add_batch of 4": lambda: local.add_batch(fragments[next(turn) % 4000]),
        "LocalReplayBuffer: replay + update_priorities of 32": update_local,
    }
    for label, run in work.items():
        compare(label, run, None, rounds, calls=200)


def time_fan_outs(capacity: int, rounds: int) -> None:
    """Draws 256 and sets them, with nothing around."""
    for fan_out, max_top in ((8, 4096), (16, 256), (16, 4096), (32, 256), (32, 1024), (64, 256), (128, 8192)):
        tree = SumTree(capacity, fan_out=fan_out, max_top=max_top)
        tree.set(np.arange(capacity), rng.random(capacity))

        def run(tree: SumTree = tree) -> None:
            tree.set(tree.sample(256, rng), rng.random(256))

        compare(f"tree, {capacity:,}: fan-out {fan_out}, at most {max_top} on top", run, None, rounds)


def resident_bytes() -> int:
    """Returns the memory of this process (Linux)."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure_memory(transitions: int = 50_000, rows: int = 5) -> None:
    frame = int(np.prod(IMAGE))
    per_transition = frame * (1 + 1 / EPISODE)
    print(
        f"memory, computed: 1,000,000 transitions of {IMAGE} uint8 in episodes of {EPISODE}: "
        f"{per_transition * 1e6 / 2**30:.2f} GiB ({2 * frame * 1e6 / 2**30:.2f} GiB with both observations of each)"
    )
    fragments = make_fragments(200, rows, IMAGE, np.uint8)
    buffer = ReplayBuffer(transitions, seed=0)
    before = resident_bytes()
    for start in range(0, 2 * transitions, rows):  # twice around, so that rows are used again
        batch = fragments[start // rows % 200]
        # The same 200 fragments (40 whole episodes) over and over, as other episodes.
        buffer.add(SampleBatch.from_columns({**batch, "eps_id": batch["eps_id"] + start // rows // 200 * 1000}))
    grown = resident_bytes() - before
    print(
        f"memory, measured: {transitions:,} transitions took {grown / 2**30:.2f} GiB, {grown / transitions:,.0f} bytes "
        f"each ({grown / transitions / frame:.3f} observations; computed {1 + 1 / EPISODE:.3f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--capacity", type=int, default=1_000_000, help="of the prioritised buffers compared")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--fan-outs", action="store_true", help="compare shapes of the sum tree too")
    parser.add_argument("--no-memory", action="store_true", help="do not fill a buffer with 1.4 GiB of images")
    arguments = parser.parse_args()
    compare_priorities(arguments.capacity, arguments.rounds)
    time_hot_paths(arguments.rounds)
    if arguments.fan_outs:
        time_fan_outs(arguments.capacity, arguments.rounds)
    if not arguments.no_memory:
        measure_memory()


if __name__ == "__main__":
    main()
