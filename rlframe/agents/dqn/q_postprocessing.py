"""Trajectories of Q-learning policies, in no framework."""

from __future__ import annotations

from typing import Any

from rlframe.data.returns import n_step
from rlframe.data.sample_batch import SampleBatch


def postprocess_nstep(
    policy: Any, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
) -> SampleBatch:
    """Sums `n_step` rewards, moves `new_obs` on, and writes `discounts` = γᵏ · (1 − terminated), k rewards summed.

    Windows that the end of an episode or fragment cuts short bootstrap with the k they really have.

    Source: Sutton & Barto 2018, eq. 7.1.
    """
    return n_step(sample_batch, int(policy.config.get("n_step", 1)), float(policy.config["gamma"]))


postprocess_nstep.handles_many = True  # type: ignore[attr-defined]  # one call for several trajectories
postprocess_nstep.framework_free = True  # type: ignore[attr-defined]  # NumPy workers may run it
