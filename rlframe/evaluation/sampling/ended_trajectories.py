"""Rows of a trajectory that has ended, while the rest of the batch is still sampled."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from rlframe.data.columns import ENV_ID
from rlframe.data.sample_batch import SampleBatch
from rlframe.evaluation.sampling.rollout import RolloutBuffer, TrajectorySlice, assemble


def rows_of(buffer: RolloutBuffer, segment: TrajectorySlice, policy: Any, settings: Any) -> SampleBatch | None:
    """Returns a segment's rows as `assemble` will; None where numbers are not finite, which it will say.

    Args:
        buffer: What is being filled; the row behind the segment is still the trajectory's last observation.
        segment: One that ended with the last row so far.
        policy: Whose columns are wanted.
        settings: See `RunnerSettings`.
    """
    slot, first = segment.slot, segment.slot * buffer.length
    start, stop = segment.start - first, segment.stop - first
    part = copy.copy(buffer)
    part.length, part.slots, part.finals, part.segments = stop - start, 1, [], [segment]
    part.make_obs(buffer.obs_at(start)[slot : slot + 1])
    for t in range(part.length + 1):
        part.obs_at(t)[0] = buffer.obs_at(start + t)[slot]
    own = slice(start, stop), slice(slot, slot + 1)
    for name in ("rewards", "terminateds", "truncateds", "skipped", "eps_id", "t", "actions", "infos"):
        column = getattr(buffer, name)
        setattr(part, name, None if column is None else column[own])
    part.extras = {name: column[own] for name, column in buffer.extras.items()}
    for column in (part.obs, part.rewards):
        if column.dtype.kind == "f" and not np.isfinite(column).all():
            return None
    rows = assemble(part, policy, settings)
    if ENV_ID in rows:
        rows[ENV_ID] = np.full(rows.count, slot)
    return rows
