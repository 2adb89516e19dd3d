"""N-step transitions within the trajectories of a batch, and what policies that replay make of them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.column_dict import BoolArray, continues, terminal_rows
from rlframe.data.columns import (
    ACTIONS,
    DISCOUNTS,
    DONES,
    N_STEPS,
    NEXT_OBS,
    OBS,
    REWARDS,
    TERMINATEDS,
    TRUNCATEDS,
    WEIGHTS,
)
from rlframe.data.rows import slice_column
from rlframe.data.sample_batch import SampleBatch


@lru_cache(maxsize=64)
def _powers(gamma: float, n: int) -> NDArray[np.float32]:
    powers = np.power(gamma, np.arange(n + 1), dtype=np.float64).astype(np.float32)
    powers.setflags(write=False)
    return powers


def n_step(batch: SampleBatch, n: int, gamma: float) -> SampleBatch:
    """Turns single-step transitions into n-step ones, in place.

    With k_t <= n rewards left in the trajectory from row t on (fewer than n before its end in this batch):

        rewards_t   = r_t + gamma * r_{t+1} + ... + gamma**(k_t - 1) * r_{t+k_t-1}
        discounts_t = gamma**k_t * (1 - terminated_{t+k_t-1})
        n_steps_t   = k_t

    `new_obs`, `terminateds`, `truncateds` and `dones` become those of the last row summed. With n=1 only `discounts`
    and `n_steps` are written.

    Args:
        batch: Any number of trajectories one after the other; a done row, a jump of `turn` or `t`, or a change of
            `eps_id` or `agent_index` ends one. In batches without `terminateds`, `dones` count as terminal.
        n: Rewards to sum, in environment steps; at least 1.
        gamma: Discount per step, in [0, 1].

    Returns:
        The batch, with columns replaced (the arrays that were in it are left alone).

    Raises:
        ValueError: If `n` or `gamma` is out of range.

    Source: Sutton & Barto 2018, "Reinforcement Learning", 2nd edition, eq. 7.1, with R_{t+1} called r_t here.
    """
    if n < 1 or not 0.0 <= gamma <= 1.0:
        raise ValueError(f"Got n_step={n}, gamma={gamma}; wanted n_step >= 1 and gamma in [0, 1].")
    terminal = terminal_rows(batch)
    rows = len(terminal)
    steps = np.ones(rows, np.int32)
    if n > 1 and rows > 1:
        rewards = np.array(batch[REWARDS], dtype=np.float32)
        _sum_ahead(rewards, steps, continues(batch), n, gamma)
        batch[REWARDS] = rewards
        terminal = _move_ends(batch, terminal, steps)
    # A product of float32 and bool is float32.
    batch[DISCOUNTS] = _powers(gamma, n)[steps] * ~terminal
    batch[N_STEPS] = steps
    return batch


def _sum_ahead(
    rewards: NDArray[np.float32], steps: NDArray[np.int32], follows: BoolArray, n: int, gamma: float
) -> None:
    """Adds up to n-1 discounted rewards ahead to each row of `rewards` and counts them in `steps`."""
    single = rewards.copy()
    alive = follows
    for ahead in range(1, min(n, len(rewards))):
        if ahead > 1:
            alive = alive[:-1] & follows[ahead - 1 :]
        rewards[:-ahead] += (gamma**ahead * single[ahead:]) * alive
        steps[:-ahead] += alive


def _move_ends(batch: SampleBatch, terminal: BoolArray, steps: NDArray[np.int32]) -> BoolArray:
    """Gives each row the successor and the end flags of the last row it sums; returns the new terminal flags."""
    last = np.arange(-1, len(steps) - 1) + steps
    batch[NEXT_OBS] = slice_column(batch[NEXT_OBS], last)
    terminal = terminal[last]
    batch[TERMINATEDS] = terminal
    for key in (TRUNCATEDS, DONES):
        if key in batch:
            batch[key] = batch[key][last]
    return terminal


#: Columns that a policy which learns from replayed transitions has sampled, and those that its loss reads.
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
    return with_weights(policy, with_discounts(policy, batch))


def with_weights(policy: Any, batch: SampleBatch) -> SampleBatch:
    """Returns the batch with weights of ones where a user's loss may read them."""
    if WEIGHTS not in batch and policy.learn_columns is None:  # drawn without priorities, or from no replay buffer
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
