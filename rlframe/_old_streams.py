"""Gives the random streams of environments the methods that they had before gym 0.26.

`self.np_random, seed = seeding.np_random(seed)` gave a `numpy.random.RandomState` up to gym 0.21, and programs draw
from it with `randint`, `rand` or `randn`. It is a `numpy.random.Generator` now, which has none of these.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from rlframe._tune_names import when_imported


def name_streams_as_before() -> None:
    """Has gym and Gymnasium make streams with the older methods, too: now, or as soon as either is imported."""
    for name in ("gym.utils.seeding", "gymnasium.utils.seeding"):
        when_imported(name, functools.partial(_extend, name))


def _extend(name: str) -> None:
    import numpy as np

    seeding: Any = sys.modules[name]
    if getattr(seeding, "RandomNumberGenerator", None) is np.random.Generator:
        from rlframe.utils.old_streams import OldNamesGenerator

        seeding.RandomNumberGenerator = OldNamesGenerator
