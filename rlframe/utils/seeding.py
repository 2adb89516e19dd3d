"""Named random streams: every stream is a function of one base seed and a path of names and numbers."""

from __future__ import annotations

import secrets
import zlib

import numpy as np


class DrawnSeed(int):
    """A seed that nobody gave: a run begins with it, but nobody expects it to be reproducible."""


def entropy_seed() -> DrawnSeed:
    """Returns a fresh base seed in [0, 2**31) for runs whose config has `seed=None`."""
    return DrawnSeed(secrets.randbelow(2**31))


def seed_sequence(seed: int, *path: int | str) -> np.random.SeedSequence:
    """Returns what NumPy makes the numbers of the stream named by `path` of."""
    key = [part if isinstance(part, int) else zlib.crc32(part.encode()) for part in path]
    return np.random.SeedSequence(entropy=seed, spawn_key=tuple(key))


def derive_seed(seed: int, *path: int | str) -> int:
    """Returns a seed in [0, 2**31) for the stream named by `path`, e.g. `(seed, "env", worker, slot, episode)`."""
    return int(seed_sequence(seed, *path).generate_state(1, np.uint32)[0] & 0x7FFFFFFF)


def make_rng(seed: int, *path: int | str) -> np.random.Generator:
    """Returns an independent generator for the stream named by `path`."""
    return np.random.Generator(np.random.PCG64(seed_sequence(seed, *path)))
