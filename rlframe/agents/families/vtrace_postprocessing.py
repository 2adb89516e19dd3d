"""What V-trace has to know of fragments, and which of their columns travel to the learner."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.columns import DISCOUNTS, NEXT_OBS, TRAJECTORY_ENDS, VALUES_AFTER
from rlframe.data.returns import terminal_rows, trajectory_ends
from rlframe.data.sample_batch import SampleBatch


def postprocess_for_vtrace(
    policy: Any, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
) -> SampleBatch:
    """Adds `discounts`, `trajectory_ends` and `values_after`; drops `new_obs`, half of what there is to send.

    Args:
        policy: Its config is read for `gamma` and `vtrace_drop_last_ts`. Where last rows are not dropped, its
            `values_after(batch, rows)` `[n]` gives V of what followed them.
        sample_batch: Any number of trajectories one after the other.
        other_agent_batches: Not used; part of the signature of postprocessing functions.
        episode: Not used; part of the signature of postprocessing functions.

    Returns:
        The same batch.
    """
    del other_agent_batches, episode
    ends, terminal = trajectory_ends(sample_batch), terminal_rows(sample_batch)
    after = np.zeros(len(ends), np.float32)
    cut = np.flatnonzero(ends & ~terminal)
    if len(cut) and not policy.config["vtrace_drop_last_ts"]:
        after[cut] = policy.values_after(sample_batch, cut)
    sample_batch[DISCOUNTS] = np.float32(policy.config["gamma"]) * ~terminal
    sample_batch[TRAJECTORY_ENDS] = ends
    sample_batch[VALUES_AFTER] = after
    sample_batch.pop(NEXT_OBS, None)
    return sample_batch


postprocess_for_vtrace.handles_many = True  # type: ignore[attr-defined]  # one call for several trajectories
postprocess_for_vtrace.framework_free = True  # type: ignore[attr-defined]  # NumPy workers may run it
