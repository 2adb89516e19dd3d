"""N-step transitions with their first priorities, as off-policy policies store them; in no framework."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.columns import ACTIONS, DISCOUNTS, NEXT_OBS, OBS, REWARDS, TERMINATEDS, WEIGHTS
from rlframe.data.returns import n_step
from rlframe.data.sample_batch import SampleBatch


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
            batch[OBS], batch[ACTIONS], batch[REWARDS], batch[NEXT_OBS], batch[TERMINATEDS], discounts=batch[DISCOUNTS]
        )
        batch[WEIGHTS] = np.abs(td_error) + np.float32(policy.config["prioritized_replay_eps"])
    return batch


def postprocess_nstep_and_value_prio(
    policy: Any, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
) -> SampleBatch:
    """Does as `postprocess_nstep_and_prio` for a policy that acts by action values Q, with no other network than that.

        δ = r + discount · max_a Q(s', a) − Q(s, a)

    The worker's own copy of the network stands for the target network, too.

    Source: Horgan et al. 2018, algorithm 1 (actors).
    """
    batch = postprocess_nstep(policy, sample_batch, other_agent_batches, episode)
    q_t, q_tp1 = (policy.inference.run({OBS: batch[key]}, False)[0] for key in (OBS, NEXT_OBS))
    chosen = np.take_along_axis(q_t, np.asarray(batch[ACTIONS], np.int64)[:, None], axis=1)[:, 0]
    td_error = np.asarray(batch[REWARDS], np.float32) + batch[DISCOUNTS] * q_tp1.max(axis=1) - chosen
    batch[WEIGHTS] = np.abs(td_error) + np.float32(policy.config["prioritized_replay_eps"])
    return batch


postprocess_nstep_and_value_prio.handles_many = True  # type: ignore[attr-defined]  # one call for several trajectories
