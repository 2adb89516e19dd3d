"""Learning from replayed sequences, for policies with memory: histories, burn-in, steps ahead, priorities."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.column_dict import is_per_sequence
from rlframe.data.columns import (
    BURN_IN,
    DISCOUNTS,
    N_STEPS,
    NEXT_OBS,
    OBS,
    REWARDS,
    SEQ_LENS,
    STATE_IN_PREFIX,
    VALID_MASK,
)
from rlframe.data.rows import as_seq_lens
from rlframe.data.sample_batch import SampleBatch
from rlframe.data.sequences import cut_into_sequences
from rlframe.policy.recurrent_context import views_after
from rlframe.replay.registry import sequence_length, sequence_period
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor

_LOGGER = logging.getLogger("rlframe")
#: Computes with a memory: columns of padded sequences to outputs, and the states behind the sequences' last rows.
Run = Callable[[Mapping[str, Any]], tuple[Any, list[Any]]]


# --- batches, in NumPy --------------------------------------------------------------------------------------------


def prepare_sequences(policy: Any) -> None:
    """Has workers cut the rows of a policy with memory where replayed sequences are to begin."""
    if not policy.is_recurrent():
        return
    config = policy.config
    policy.max_seq_len = sequence_period(config)
    fragment, length = int(config["rollout_fragment_length"]), sequence_length(config)
    told = config["model"].get("use_lstm") or config["model"].get("use_attention")  # then episodes are whole anyway
    if config["batch_mode"] != "complete_episodes" and fragment < length and not told:
        _LOGGER.warning(
            "batch_mode=%r with rollout_fragment_length=%d: %s has memory and learns from sequences of %d rows, but "
            "they end where a sample ends; set batch_mode='complete_episodes'",
            config["batch_mode"], fragment, type(policy).__name__, length,
        )  # fmt: skip


def histories(policy: Any, batch: SampleBatch) -> SampleBatch:
    """Returns sequences with the observation behind their last rows, n-step rewards, and burn-in apart.

    What a step leads to is a later row of the same sequence, so that memories run once over all. Rewards are summed
    over `n_step` rows, or as many as there are to the sequence's end: `n_steps` says how many. Rows of burn-in stand
    before the others, fillers where a sequence has none; one more row of each sequence is the observation behind it.

    A loss of the user's own gets sequences as RLlib's losses did: with `new_obs`, and without the row behind the last
    one; `seq_lens` counts burn-in, too.

    Args:
        policy: Its config's `n_step` and `burn_in` count, where it has them.
        batch: Rows `[B, ...]`, one step each, with `discounts`; cut into sequences, or with states by row. `burn_in`
            says which rows are not learned from.

    Returns:
        Padded sequences, row columns `[S · T, ...]`: `valid_mask` marks what is learned from, `seq_lens` counts the
        rows behind burn-in, `burn_in` tells which sequences have some.
    """
    batch = cut_into_sequences(batch, policy.max_seq_len)
    lens, burn_in = as_seq_lens(batch[SEQ_LENS]), int(policy.config.get("burn_in", 0))
    starts = np.cumsum(lens) - lens
    last = starts + lens - 1
    warming = np.asarray(batch.get(BURN_IN, np.zeros(batch.count, bool)))
    warmed = np.add.reduceat(warming, starts, dtype=np.int64)
    own_loss = policy._has_own_loss()
    width = burn_in + int((lens - warmed).max()) + (not own_loss)
    first = np.arange(len(lens)) * width + burn_in - warmed
    place = np.repeat(first - starts, lens) + np.arange(len(warming))
    summed = dict(
        zip((REWARDS, DISCOUNTS, N_STEPS), _sums(batch, lens, int(policy.config.get("n_step", 1))), strict=True)
    )
    after = batch[NEXT_OBS][last]
    behind = {} if own_loss else {OBS: after, **views_after(policy.acting_views(), batch, last, after)}

    def spread(column: NDArray[Any], after: NDArray[Any] | None = None) -> NDArray[Any]:
        made = np.zeros((len(lens) * width, *column.shape[1:]), column.dtype)
        made[place] = column
        if after is not None:
            made[first + lens] = after
        return made

    columns = {
        key: np.asarray(column)
        if is_per_sequence(key)
        else spread(np.asarray(summed.get(key, column)), behind.get(key))
        for key, column in batch.items()
        if (own_loss or key != NEXT_OBS) and np.asarray(column).dtype.kind != "O"
    }
    columns[VALID_MASK] = spread(~warming)
    columns[SEQ_LENS] = (lens - warmed + (burn_in if own_loss else 1)).astype(np.int32)
    if own_loss:
        columns.pop(N_STEPS, None)
    else:
        columns[N_STEPS] = spread(summed[N_STEPS])
    if burn_in:
        columns[BURN_IN] = np.repeat(warmed > 0, width)
    made = SampleBatch.from_columns(columns, len(lens) * width)
    made.zero_padded, made.max_seq_len = True, width
    return made


def _sums(batch: SampleBatch, lens: NDArray[np.int64], n: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Returns sums of up to n discounted rewards `[B]`, the discounts behind them, and how many they are."""
    rewards, one_step = np.asarray(batch[REWARDS], np.float32), np.asarray(batch[DISCOUNTS], np.float32)
    sums, discounts, counts = rewards.copy(), one_step.copy(), np.ones(len(rewards), np.int32)
    ends = np.repeat(np.cumsum(lens), lens)
    for ahead in range(1, n):
        row = np.flatnonzero(np.arange(ahead, ahead + len(rewards)) < ends)
        sums[row] += discounts[row] * rewards[row + ahead]
        discounts[row] *= one_step[row + ahead]
        counts[row] += 1
    return sums, discounts, counts


# --- tensors ------------------------------------------------------------------------------------------------------


def model_inputs(model: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the columns of a batch that a model with memory computes with."""
    views = [key for key in model.view_requirements if not key.startswith("state_") and key in batch]
    states = [key for key in batch if key.startswith(STATE_IN_PREFIX)]
    burn_in = [BURN_IN] if BURN_IN in batch else []
    return {key: batch[key] for key in dict.fromkeys([OBS, *views, *states, SEQ_LENS, *burn_in])}


def behind_burn_in(batch: Mapping[str, Any], burn_in: int) -> dict[str, Any]:
    """Returns the columns of padded sequences without their first `burn_in` rows, `[S · (T − burn_in), ...]`."""
    lens = batch[SEQ_LENS]
    return {
        key: column if not burn_in or is_per_sequence(key) else _rows(column, lens, slice(burn_in, None))
        for key, column in batch.items()
        if key != BURN_IN
    }


def warmed_up(run: Run, columns: Mapping[str, Any], burn_in: int) -> dict[str, Any]:
    """Returns what a memory computes with behind burn-in: later rows, and the states to which the first rows lead.

    Sequences without burn-in keep the states that were stored. No gradient flows through burn-in.

    Args:
        run: The memory, online or target.
        columns: Those of `model_inputs`.
        burn_in: Rows of burn-in that each sequence has place for.

    Source: Kapturowski et al. 2019, section 3.
    """
    later = behind_burn_in(columns, burn_in)
    if not burn_in:
        return later
    lens = columns[SEQ_LENS]
    early = {
        key: column if is_per_sequence(key) else _rows(column, lens, slice(None, burn_in))
        for key, column in columns.items()
        if key != BURN_IN
    }
    early[SEQ_LENS] = ops.zeros_like(lens) + burn_in
    reached = ops.without_gradient(lambda obs: tuple(run({**early, OBS: obs})[1]), early[OBS])
    burned = ops.split_sequences(columns[BURN_IN], lens)[:, 0]
    for index, state in enumerate(reached):
        stored = columns[f"{STATE_IN_PREFIX}{index}"]
        later[f"{STATE_IN_PREFIX}{index}"] = ops.where(ops.expand_like(burned, stored), state, stored)
    return later


def steps_of(policy: Any, batch: SampleBatch) -> SampleBatch:
    """Returns the rows of a batch of tensors that losses are computed of: of sequences, those behind burn-in."""
    if not policy.is_recurrent():
        return batch
    return with_steps_to_next(batch._like(behind_burn_in(batch, int(policy.config["burn_in"]))))


def encoded(policy: Any, networks: Any, batch: Mapping[str, Any], *, training: bool = False) -> Tensor:
    """Returns the features of `steps_of` a batch, `[B, F]`: those of an encoder's memory, where it has one.

    Args:
        policy: Whose model it is.
        networks: The policy's networks, or the target's.
        batch: Tensors.
        training: What an encoder without memory is told.
    """
    if not policy.is_recurrent():
        features: Tensor = networks.encode(batch[OBS], training=training)
        return features

    def run(columns: Mapping[str, Any]) -> tuple[Tensor, list[Any]]:
        made: tuple[Tensor, list[Any]] = networks.encoder({**columns, "is_training": True})
        return made

    return run(warmed_up(run, model_inputs(policy.model, batch), int(policy.config.get("burn_in", 0))))[0]


def encoded_next(policy: Any, networks: Any, batch: SampleBatch, seen: Tensor | None = None) -> Tensor:
    """Returns the features of what the steps lead to, `[B, F]`, as constants.

    Args:
        policy: Whose model it is.
        networks: The policy's networks, or the target's.
        batch: Tensors.
        seen: What `encoded` gave for these networks, where it is there.
    """
    if not policy.is_recurrent():
        made: Tensor = ops.without_gradient(networks.encode, batch[NEXT_OBS])
        return made
    if seen is None:
        seen = ops.without_gradient(lambda obs: encoded(policy, networks, {**batch, OBS: obs}), batch[OBS])
    return steps_ahead(ops.stop_gradient(seen), steps_of(policy, batch)[N_STEPS], int(policy.config["n_step"]))


def td_errors_to_replay(policy: Any, td_error: Tensor, steps: Mapping[str, Any]) -> Tensor:
    """Returns the TD errors `[B]` of rows, or what they make of whole sequences `[S]`, see `sequence_priorities`."""
    if not policy.is_recurrent():
        return td_error
    return sequence_priorities(td_error, steps, float(policy.config["prioritized_replay_eta"]))


def _rows(column: Tensor, lens: Tensor, steps: slice) -> Tensor:
    """Returns some steps of padded sequences `[S · T, ...]` as rows."""
    return ops.flatten_sequences(ops.split_sequences(column, lens)[:, steps])


def with_steps_to_next(steps: SampleBatch) -> SampleBatch:
    """Returns sequences with `n_steps`; where they have none, rows lead to the next, and the last does not count."""
    if N_STEPS in steps:
        return steps
    valid = ops.split_sequences(steps[VALID_MASK], steps[SEQ_LENS])
    goes_on = ops.concat([valid[:, 1:], valid[:, :1] & ~valid[:, :1]], axis=1)
    mask = ops.flatten_sequences(valid & goes_on)
    return steps._like({**steps, VALID_MASK: mask, N_STEPS: ops.to_int(ops.to_float(mask), 32) * 0 + 1})


def steps_ahead(x: Tensor, n_steps: Tensor, n: int) -> Tensor:
    """Returns, for each row, what stands `n_steps` rows behind it, `[B, ...]`; rows at the end get others' entries.

    Args:
        x: `[B, ...]`.
        n_steps: int `[B]`, each in [1, n].
        n: The largest of them.
    """
    ahead = ops.roll(x, -1)
    for steps in range(2, n + 1):
        ahead = ops.where(ops.expand_like(n_steps == steps, x), ops.roll(x, -steps), ahead)
    return ahead


def sequence_priorities(td_error: Tensor, batch: Mapping[str, Any], eta: float) -> Tensor:
    """Returns the priority of each sequence, η max |δ| + (1 − η) mean |δ| over the rows learned from. Float `[S]`.

    Args:
        td_error: δ. Float `[S · T]`.
        batch: `seq_lens` `[S]`, and `valid_mask`, which says what is learned from, `[S · T]`.
        eta: η.

    Source: Kapturowski et al. 2019, section 2.3.
    """
    valid = ops.cast_like(batch[VALID_MASK], td_error)
    sizes = ops.where(batch[VALID_MASK], ops.abs(td_error), ops.zeros_like(td_error))
    by_step, counts = (ops.split_sequences(column, batch[SEQ_LENS]) for column in (sizes, valid))
    mean = ops.sum(by_step, axis=1) / ops.maximum(ops.sum(counts, axis=1), 1.0)
    return ops.stop_gradient(eta * ops.max(by_step, axis=1) + (1.0 - eta) * mean)
