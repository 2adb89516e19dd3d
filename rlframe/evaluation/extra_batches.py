"""Batches that a program adds to what a worker samples, by `episode.add_extra_batch`: counterfactual ones, say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.sample_batch import DEFAULT_POLICY_ID, MultiAgentBatch, SampleBatch
from rlframe.data.sequences import cut_into_sequences


def check_extra(batch: Any, policies: Mapping[str, Any]) -> None:
    """Checks what a program adds.

    Raises:
        ValueError: If it is no batch, or one of policies that there are not.
    """
    if not isinstance(batch, (SampleBatch, MultiAgentBatch)):
        raise ValueError(f"add_extra_batch: got {type(batch).__name__}, wanted a SampleBatch or a MultiAgentBatch")
    unknown = sorted(set(batch.as_multi_agent().policy_batches) - set(policies))
    if unknown:
        raise ValueError(
            f"add_extra_batch: got rows of {', '.join(unknown)}, wanted rows of {', '.join(policies)}; where there are "
            "several policies, MultiAgentBatch({policy_id: batch}, env_steps) says whose they are"
        )


def join_extra(
    batch: SampleBatch | MultiAgentBatch,
    extra: Sequence[SampleBatch | MultiAgentBatch],
    policies: Mapping[str, Any],
) -> SampleBatch | MultiAgentBatch:
    """Returns a batch with the rows of others behind it, of which it takes the columns that it has itself.

    What rows lack and learning does not read, such as `agent_index` where a program looks at samples, is zeros, or {}.

    Raises:
        ValueError: If rows lack one of the other columns.
    """
    sampled = batch.as_multi_agent()
    parts = [sampled]
    for each in extra:
        added = each.as_multi_agent()
        fitted = {pid: _fitted(part, sampled.policy_batches.get(pid), policies[pid], pid)
                  for pid, part in added.policy_batches.items()}  # fmt: skip
        parts.append(MultiAgentBatch(fitted, added.count))
    joined = MultiAgentBatch.concat_samples(parts)
    return joined if isinstance(batch, MultiAgentBatch) else joined.policy_batches[DEFAULT_POLICY_ID]


def _fitted(part: SampleBatch, sampled: SampleBatch | None, policy: Any, policy_id: str) -> SampleBatch:
    if policy.learns_sequences():
        part = cut_into_sequences(part, policy.max_seq_len, keep_states_out=policy.train_columns is None)
    if sampled is None:
        return part
    told = getattr(policy, "columns_learned_from", None)  # those that only act do not tell
    read = None if told is None else told()
    lacking = [key for key in sampled if key not in part]
    missing = lacking if read is None else [key for key in lacking if key in read]
    if missing:
        raise ValueError(
            f"add_extra_batch: rows of {policy_id} lack {', '.join(missing)}, which its sampled rows have; wanted "
            f"{', '.join(sampled)}"
        )
    rows = {key: part[key] if key in part else _nothing(column, part.count) for key, column in sampled.items()}
    return part._like(rows)


def _nothing(column: NDArray[Any], rows: int) -> NDArray[Any]:
    if column.dtype == object:
        return np.array([{} for _ in range(rows)], object)
    return np.zeros((rows, *column.shape[1:]), column.dtype)
