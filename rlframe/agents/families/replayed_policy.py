"""What policies that learn from replayed transitions share: columns, n-step rewards, first priorities."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.columns import ACTIONS, DISCOUNTS, DONES, NEXT_OBS, OBS, REWARDS, WEIGHTS
from rlframe.data.n_step import n_step, terminal_rows
from rlframe.data.sample_batch import SampleBatch

#: Columns that such a policy has sampled, and those that its loss reads.
SAMPLED_COLUMNS = (NEXT_OBS, DONES)
LOSS_COLUMNS = (OBS, ACTIONS, REWARDS, NEXT_OBS, DISCOUNTS, WEIGHTS)


def with_discounts(policy: Any, batch: SampleBatch) -> SampleBatch:
    """Returns the batch with `discounts` = γⁿ · (1 − terminated), where postprocessing wrote none."""
    if DISCOUNTS in batch:
        return batch
    batch = batch.copy(shallow=True)
    n = 1 if policy.is_recurrent() else int(policy.config.get("n_step", 1))
    power = np.float32(float(policy.config["gamma"]) ** n)
    batch[DISCOUNTS] = power * ~terminal_rows(batch)
    return batch


def with_discounts_and_weights(policy: Any, batch: SampleBatch) -> SampleBatch:
    """Returns the batch with `discounts`, and with weights of ones where a user's loss may read them."""
    batch = with_discounts(policy, batch)
    if WEIGHTS not in batch and policy.learn_columns is None:  # a batch that comes from no replay buffer
        batch = batch.copy(shallow=True)
        batch[WEIGHTS] = np.ones(batch.count, np.float32)
    return batch


def postprocess_discounts(
    policy: Any, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
) -> SampleBatch:
    """Adds `discounts`, for policies that learn from whole sequences."""
    del other_agent_batches, episode
    return with_discounts(policy, sample_batch)


postprocess_discounts.handles_many = True  # type: ignore[attr-defined]  # one call for several trajectories
postprocess_discounts.framework_free = True  # type: ignore[attr-defined]  # NumPy workers may run it


def postprocess_nstep(
    policy: Any, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
) -> SampleBatch:
    """Sums `n_step` rewards, moves `new_obs` on, and writes `discounts` = γᵏ · (1 − terminated), k rewards summed.

    Windows that the end of an episode or fragment cuts short bootstrap with the k they really have. Rows of policies
    with memory stay single steps, which are summed when sequences of them are replayed.

    Source: Sutton & Barto 2018, eq. 7.1.
    """
    n = 1 if policy.is_recurrent() else int(policy.config.get("n_step", 1))
    return n_step(sample_batch, n, float(policy.config["gamma"]))


postprocess_nstep.handles_many = True  # type: ignore[attr-defined]  # one call for several trajectories
postprocess_nstep.framework_free = postprocess_nstep  # type: ignore[attr-defined]  # NumPy workers may run it


def postprocess_nstep_and_prio(
    policy: Any, batch: SampleBatch, other_agent: Any = None, episode: Any = None
) -> SampleBatch:
    """Does as `postprocess_nstep`; with `worker_side_prioritization` adds first priorities |δ| + ε as `weights`.

    The policy must have `compute_td_error`.
    """
    batch = postprocess_nstep(policy, batch, other_agent, episode)
    if policy.config.get("worker_side_prioritization"):  # not among the keys of all that replay
        td_error = policy.compute_td_error(
            *(batch[key] for key in (OBS, ACTIONS, REWARDS, NEXT_OBS)), terminal_rows(batch), discounts=batch[DISCOUNTS]
        )
        batch[WEIGHTS] = np.abs(td_error) + np.float32(policy.config["prioritized_replay_eps"])
    return batch


def postprocess_replayed(
    policy: Any, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
) -> SampleBatch:
    """Sums n-step rewards; with `worker_side_prioritization` adds first priorities |δ| as `weights`."""
    return postprocess_nstep_and_prio(policy, sample_batch, other_agent_batches, episode)


postprocess_replayed.framework_free = postprocess_nstep  # type: ignore[attr-defined]  # a marker for NumPy workers
