"""Rows of several policies that belong to the same steps: what replay in lockstep stores and draws."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import AGENT_INDEX, EPS_ID, T

if TYPE_CHECKING:
    from rlframe.data.sample_batch import SampleBatch
    from rlframe.replay.transition_buffers import ReplayBuffer

Keys = NDArray[np.int64]

_MODE = "multiagent.replay_mode='lockstep'"
_ADVICE = "agents that take turns, or come and go, can only be replayed with 'independent'"


def joint_steps(batches: Mapping[str, SampleBatch], known: Collection[str] = ()) -> dict[str, SampleBatch]:
    """Returns the batches with their rows in one order: row i of each is of the same step of the same episode.

    Args:
        batches: Rows by policy id, with `eps_id` and `t`. Trajectories may lie in any order.
        known: Policies that must have rows, those that are stored already; any will do where there are none.

    Returns:
        Batches of the same length, ordered by episode and step; those that are in order already are not copied.

    Raises:
        ValueError: If a policy has several rows of a step, or none where others have one, or is none of `known`.
    """
    _check_policies(batches, known)
    keys = {policy_id: _keys(policy_id, rows) for policy_id, rows in batches.items()}
    orders = {policy_id: np.lexsort((steps[:, 1], steps[:, 0])) for policy_id, steps in keys.items()}
    ordered = {policy_id: keys[policy_id][order] for policy_id, order in orders.items()}
    for policy_id, steps in ordered.items():
        _check_one_row_per_step(policy_id, steps, batches[policy_id], orders[policy_id])
    _check_same_steps(ordered)
    return {policy_id: _reordered(rows, orders[policy_id]) for policy_id, rows in batches.items()}


def alive_in_all(buffers: Mapping[str, ReplayBuffer]) -> tuple[int, int]:
    """Returns the numbers (first, end) of the joint steps that all buffers still have.

    Raises:
        ValueError: If one of them missed rows that others have, because storing them failed.
    """
    firsts, ends = zip(*(buffer.numbers for buffer in buffers.values()), strict=True)
    if len(set(ends)) > 1:
        counts = ", ".join(f"{policy_id!r}: {end}" for policy_id, end in zip(buffers, ends, strict=True))
        raise ValueError(
            f"{_MODE}: the policies' buffers were given different numbers of rows ({counts}), because adding a batch "
            "failed halfway; go on from a checkpoint"
        )
    return max(firsts), ends[0]


def _check_policies(batches: Mapping[str, SampleBatch], known: Collection[str]) -> None:
    acted = {policy_id for policy_id, rows in batches.items() if rows.count}
    wanted = set(known) or set(batches)
    if acted != wanted:
        raise ValueError(
            f"{_MODE}: got rows of the policies {sorted(acted)}, wanted rows of {sorted(wanted)} in each batch; "
            f"{_ADVICE}"
        )


def _keys(policy_id: str, rows: SampleBatch) -> Keys:
    """Returns episode and step of each row, int64 `[B, 2]`."""
    if EPS_ID not in rows or T not in rows:
        raise ValueError(
            f"{_MODE}: the rows of policy {policy_id!r} have no {EPS_ID!r} and {T!r}, got {sorted(rows)}; these say "
            "which rows belong together"
        )
    return np.stack([np.asarray(rows[EPS_ID], np.int64), np.asarray(rows[T], np.int64)], axis=1)


def _check_one_row_per_step(policy_id: str, steps: Keys, rows: SampleBatch, order: Keys) -> None:
    again = np.flatnonzero((steps[1:] == steps[:-1]).all(axis=1))
    if not len(again):
        return
    place = int(again[0])
    agents: Any = "" if AGENT_INDEX not in rows else np.asarray(rows[AGENT_INDEX])[order[place : place + 2]].tolist()
    raise ValueError(
        f"{_MODE}: policy {policy_id!r} has several rows of {_step(steps[place])}"
        + (f", of the agents number {' and '.join(map(str, agents))}" if agents else "")
        + "; wanted one: let policy_mapping_fn give every agent a policy of its own, or use 'independent'"
    )


def _check_same_steps(steps: Mapping[str, Keys]) -> None:
    first, *others = steps
    for policy_id in others:
        if np.array_equal(steps[policy_id], steps[first]):
            continue
        mine, theirs = (set(map(tuple, steps[name].tolist())) for name in (first, policy_id))
        step = min(mine ^ theirs)
        acted, missing = (first, policy_id) if step in mine else (policy_id, first)
        raise ValueError(
            f"{_MODE}: at {_step(step)} the agent of policy {acted!r} acted and that of {missing!r} did not; wanted "
            f"all agents to act at every step: {_ADVICE}"
        )


def _step(key: Any) -> str:
    return f"step {int(key[1])} of episode {int(key[0])}"


def _reordered(rows: SampleBatch, order: Keys) -> SampleBatch:
    return rows if np.array_equal(order, np.arange(len(order))) else rows.take(order)
