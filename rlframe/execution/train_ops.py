"""Operators that learn (steps on a batch, what they report together, target networks) and that store and replay."""

from __future__ import annotations

import math
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.data.columns import BATCH_INDEXES, SEQ_LENS
from rlframe.data.rows import as_seq_lens
from rlframe.data.sample_batch import DEFAULT_POLICY_ID, MultiAgentBatch, SampleBatch
from rlframe.execution.plan.context import (
    AGENT_STEPS_TRAINED_COUNTER,
    LAST_TARGET_UPDATE_TS,
    LEARN_ON_BATCH_TIMER,
    LEARNER_INFO,
    NUM_TARGET_UPDATES,
    STEPS_SAMPLED_COUNTER,
    STEPS_TRAINED_COUNTER,
    STEPS_TRAINED_THIS_ITER_COUNTER,
    WORKER_UPDATE_TIMER,
    SharedMetrics,
    _check_sample_batch_type,
    _get_shared_metrics,
    _NextValueNotReady,
    agent_steps,
    policy_parts,
)
from rlframe.execution.plan.local_iterator import LocalIterator
from rlframe.utils.errors import NonFiniteError
from rlframe.utils.seeding import entropy_seed, make_rng
from rlframe.utils.threads import blas_in_one_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rlframe.data.sequences import IntArray
    from rlframe.execution.plan.context import Batch


class BeforeLearn:
    """Item in and out: a batch. Runs the user's `before_learn_on_batch`; touches no counters."""

    def __init__(self, workers: Any, config: Mapping[str, Any]) -> None:
        self.function = config.get("before_learn_on_batch")
        self.workers, self.config = workers, config

    def __call__(self, batch: Any) -> Any:
        """Returns what the user's function makes of the batch."""
        return batch if self.function is None else self.function(batch, self.workers, self.config)


class TrainOneStep:
    """Learns from a batch on the local worker; the remote ones get the new weights before they sample.

    Takes a SampleBatch or MultiAgentBatch; gives `(batch, {policy id: learner info})`. Counts `num_steps_trained`,
    `num_steps_trained_this_iter` (set back by CollectMetrics) and `num_agent_steps_trained`, where a row counts once
    however often it is learned from; sets `info["learner"]`; times `learn`, and `update` with remote workers.

    Args:
        workers: The WorkerSet.
        policies: Ids of the policies to train; all that are to be trained when empty.
        num_sgd_iter: Passes over the batch.
        sgd_minibatch_size: Rows per learner step, in a new random order in each pass; of batches that are cut into
            sequences whole ones are taken, and padding counts. The last step of a pass may have fewer rows.
            0 means the whole batch.
        between_passes: `fn(policy, rows) -> rows`, which gives each pass but the first the rows that it learns from.
    """

    # Whether the short last minibatch of a pass is left out.
    _drop_remainder = False
    # Whether minibatches are in random order.
    _shuffle = True

    def __init__(
        self,
        workers: Any,
        policies: Sequence[str] = (),
        num_sgd_iter: int = 1,
        sgd_minibatch_size: int = 0,
        between_passes: Callable[[Any, SampleBatch], SampleBatch] | None = None,
    ) -> None:
        if num_sgd_iter < 1 or sgd_minibatch_size < 0:
            raise ValueError(
                f"Got num_sgd_iter={num_sgd_iter}, sgd_minibatch_size={sgd_minibatch_size}; "
                "wanted 1 pass or more, and 0 rows (all) or more"
            )
        from rlframe.utils.metrics.learner_info import LearnerInfo

        self._told: type[dict[str, Any]] = LearnerInfo
        self.workers = workers
        # Remote workers come and go in this list; the local one stays.
        self._local, self._remote = workers.local_worker(), workers.remote_workers()
        self.policies = policies
        self.num_sgd_iter = num_sgd_iter
        self.sgd_minibatch_size = int(sgd_minibatch_size)  # programs divide for it: train_batch_size / 4
        self._between_passes = between_passes
        self._one_step = num_sgd_iter == 1 and sgd_minibatch_size == 0
        self._rng: np.random.Generator | None = None

    def plan_args(self) -> str:
        """Returns passes and minibatch size where they are set, for reports."""
        return "" if self._one_step else f"{self.num_sgd_iter} x minibatches of {self.sgd_minibatch_size or 'all'}"

    def __call__(self, batch: Batch) -> tuple[Batch, dict[str, Any]]:
        """Learns from the batch; returns it with the learner info by policy id."""
        _check_sample_batch_type(batch)
        metrics = _get_shared_metrics()
        local = self._local
        rows = batch.count
        started = perf_counter()
        info = {
            pid: self._learn(local.policy_map[pid], part) for pid, part in policy_parts(local, batch, self.policies)
        }
        timer = metrics.timers[LEARN_ON_BATCH_TIMER]
        timer.push(perf_counter() - started)
        timer.push_units_processed(rows)
        metrics.info[LEARNER_INFO] = info
        counters = metrics.counters
        counters[STEPS_TRAINED_COUNTER] += rows
        counters[STEPS_TRAINED_THIS_ITER_COUNTER] += rows
        counters[AGENT_STEPS_TRAINED_COUNTER] += agent_steps(batch)
        global_vars = {"timestep": counters[STEPS_SAMPLED_COUNTER]}
        if self._remote:
            with metrics.timers[WORKER_UPDATE_TIMER]:
                self.workers.weights_changed(
                    policies=list(self.policies or local.policies_to_train), global_vars=global_vars
                )
        local.set_global_vars(global_vars)
        return batch, info

    def _learn(self, policy: Any, rows: SampleBatch) -> dict[str, Any]:
        if self._one_step:
            info: dict[str, Any] = policy.learn_on_batch(rows)
            return info
        passes = (self._rows_of_pass(policy, rows, index) for index in range(self.num_sgd_iter))
        with blas_in_one_thread():  # which policies ask for at each step; within itself it costs nothing
            infos = [
                policy.learn_on_batch(minibatch)
                for kept in passes
                for minibatch in self._minibatches(kept, self.sgd_minibatch_size)
            ]
        return self._told(merge_learner_infos(infos))

    def _rows_of_pass(self, policy: Any, rows: SampleBatch, index: int) -> SampleBatch:
        return rows if index == 0 or self._between_passes is None else self._between_passes(policy, rows)

    def _minibatches(self, rows: SampleBatch, size: int) -> Iterator[SampleBatch]:
        """Yields one pass over the rows."""
        rng = self._generator if self._shuffle else None
        return pass_of_minibatches(rows, size, rng, drop_remainder=self._drop_remainder)

    def _generator(self) -> np.random.Generator:
        """Returns the stream that orders minibatches, derived from the config's seed."""
        if self._rng is None:
            config = getattr(self._local, "policy_config", None) or {}
            seed = config.get("seed")
            self._rng = make_rng(entropy_seed() if seed is None else int(seed), "minibatches")
        return self._rng

    def get_state(self) -> dict[str, Any]:
        """Returns the random stream, or None where no minibatch was ever drawn."""
        return {"rng": None if self._rng is None else self._rng.bit_generator.state}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes the random stream back."""
        if state["rng"] is not None:
            self._generator().bit_generator.state = state["rng"]


def pass_of_minibatches(
    rows: SampleBatch, size: int, rng: Callable[[], np.random.Generator] | None, *, drop_remainder: bool = False
) -> Iterator[SampleBatch]:
    """Yields the minibatches of one pass over a batch.

    Args:
        rows: The batch. Of one that is cut into sequences whole ones are taken, and padded.
        size: Rows per minibatch; 0 means all.
        rng: Returns the random stream of the order, called only where there is an order to draw; None keeps the order.
        drop_remainder: Leave out the last minibatch if it is short, unless it is the only one.
    """
    if not size or size >= rows.count:
        yield rows
        return
    units = len(rows[SEQ_LENS]) if SEQ_LENS in rows else rows.count
    order = np.arange(units) if rng is None else rng().permutation(units)
    if SEQ_LENS in rows:
        yield from sequence_minibatches(rows, size, order, drop_remainder=drop_remainder)
        return
    last = units - units % size if drop_remainder else units
    for start in range(0, last, size):
        yield rows.take(order[start : start + size])


def sequence_minibatches(
    batch: SampleBatch, size: int, order: IntArray, *, drop_remainder: bool = False
) -> Iterator[SampleBatch]:
    """Yields minibatches of whole sequences, padded.

    Args:
        batch: Rows cut into sequences, not padded.
        size: Rows per minibatch, padding included, as in RLlib; one ends with the sequence that reaches as many.
        order: Numbers of the sequences in the order in which they are taken.
        drop_remainder: Leave out the last minibatch if it has fewer rows than `size`, unless it is the only one.
    """
    from rlframe.data.sequences import padded_sequences

    count = -(-size // int(as_seq_lens(batch[SEQ_LENS]).max()))
    for begin in range(0, len(order), count):
        chosen = order[begin : begin + count]
        if drop_remainder and begin > 0 and len(chosen) < count:
            return
        yield padded_sequences(batch, chosen=chosen)


def merge_learner_infos(infos: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns one learner info for several minibatches (or devices).

    Numbers become their mean, NaN left out; those named `min_*` and `max_*` become the smallest and the largest;
    `td_error` arrays are joined; dicts are merged likewise; of anything else, the last is kept.

    Args:
        infos: What `policy.learn_on_batch()` returned, in order.
    """
    if len(infos) == 1:
        return dict(infos[0])
    names = list(dict.fromkeys(name for info in infos for name in info))
    own = [dict(info) for info in infos]  # without what a LearnerInfo finds deeper
    return {name: _merge(name, [info[name] for info in own if name in info]) for name in names}


def _merge(name: str, values: list[Any]) -> Any:
    first = values[0]
    if isinstance(first, dict):
        return merge_learner_infos([value for value in values if isinstance(value, dict)])
    if name == "td_error":
        return np.concatenate([np.atleast_1d(value) for value in values])
    try:
        numbers = [float(value) for value in values]
    except (TypeError, ValueError):  # None, text, or an array of more than one element
        return values[-1]
    numbers = [number for number in numbers if not math.isnan(number)]
    if not numbers:
        return math.nan
    if name.startswith("min_"):
        return min(numbers)
    if name.startswith("max_"):
        return max(numbers)
    return sum(numbers) / len(numbers)


class UpdateTargetNetwork:
    """Lets policies copy their weights to their target networks from time to time.

    Takes any item and gives it on. Reads `num_steps_sampled`, or `num_steps_trained` with `by_steps_trained`; counts
    `num_target_updates` and sets `last_target_update_ts`.

    Args:
        workers: The WorkerSet.
        target_update_freq: The targets are updated when *more* than this many env steps have passed since the last
            time. With 0, at every item, also where several train steps follow one sample step.
        by_steps_trained: Count steps trained instead of steps sampled.
        policies: Ids of the policies; all that are trained when empty.
    """

    def __init__(
        self, workers: Any, target_update_freq: int, by_steps_trained: bool = False, policies: Sequence[str] = ()
    ) -> None:
        self.workers, self._local = workers, workers.local_worker()
        self.target_update_freq = target_update_freq
        self.policies = policies
        self.by_steps_trained = by_steps_trained
        self._counter = STEPS_TRAINED_COUNTER if by_steps_trained else STEPS_SAMPLED_COUNTER

    def plan_args(self) -> str:
        """Returns the interval, for reports."""
        return f"{self.target_update_freq} steps {'trained' if self.by_steps_trained else 'sampled'}"

    def __call__(self, item: Any) -> Any:
        """Updates the targets when it is time, and returns the item."""
        counters = _get_shared_metrics().counters
        now = counters[self._counter]
        if self.target_update_freq <= 0 or now - counters[LAST_TARGET_UPDATE_TS] > self.target_update_freq:
            local = self._local
            for pid in self.policies or local.policies_to_train:
                local.policy_map[pid].update_target()
            counters[NUM_TARGET_UPDATES] += 1
            counters[LAST_TARGET_UPDATE_TS] = now
        return item


# --- storing and replaying ---------------------------------------------------------------------------------------

_TD_ERROR = "td_error"


def _check_one_given(local_buffer: Any, actors: Sequence[Any] | None) -> None:
    if (local_buffer is None) == (not actors):
        got = "neither" if local_buffer is None else "both"
        raise ValueError(f"Got {got} of local_buffer and actors, wanted exactly one of them")


class StoreToReplayBuffer:
    """Stores batches in a replay buffer.

    Takes a SampleBatch or MultiAgentBatch and gives it on. Actors that store more slowly than workers sample are waited
    for.

    Args:
        local_buffer: A buffer in this process (`add_batch(batch)`).
        actors: Replay actors; each batch goes to a random one of them.
        seed: Seed of that choice.
        blocking: Whether to wait within the call; otherwise it answers with a not-ready marker, so that other branches
            of the plan go on.

    Raises:
        ValueError: If both or neither are given; later, if an actor refuses a batch.
        WorkerError: If an actor has died.
    """

    def __init__(
        self,
        local_buffer: Any = None,
        *,
        actors: Sequence[Any] | None = None,
        seed: int | None = None,
        blocking: bool = True,
    ) -> None:
        _check_one_given(local_buffer, actors)
        self.local_buffer = local_buffer
        self.actors = list(actors or ())
        self._store: Callable[[Batch], Any] | None = None
        if actors:
            from rlframe.execution.replay_actors import StoreInActors

            self._store = StoreInActors(self.actors, seed, None if blocking else 0.0)

    def plan_args(self) -> str:
        """Returns where batches go, for reports."""
        return f"{len(self.actors)} actors" if self.actors else "local buffer"

    def __call__(self, batch: Batch) -> Any:
        """Stores the batch and returns it, or a not-ready marker while too many are under way."""
        if self._store is not None:
            return self._store(batch)
        self.local_buffer.add_batch(batch)
        return batch


class _LocalReplay:
    """Batches of a buffer in this process."""

    plan_name = "Replay"

    def __init__(self, buffer: Any) -> None:
        self._buffer = buffer

    def plan_args(self) -> str:
        return "local buffer"

    def __iter__(self) -> _LocalReplay:
        return self

    def __next__(self) -> Any:
        batch = self._buffer.replay()
        return _NextValueNotReady() if batch is None else batch


def Replay(local_buffer: Any = None, *, actors: Sequence[Any] | None = None, num_async: int = 4) -> LocalIterator[Any]:
    """Gives batches out of a replay buffer without end, or not-ready markers until the buffer has enough to begin.

    Gives a SampleBatch or MultiAgentBatch per item. Touches no counters.

    Args:
        local_buffer: A buffer in this process (`replay()` returns a batch, or None to wait).
        actors: Replay actors to draw from.
        num_async: Requests in flight per actor.

    Raises:
        ValueError: If both or neither of buffer and actors are given.
    """
    _check_one_given(local_buffer, actors)
    if local_buffer is not None:
        return LocalIterator(lambda: _LocalReplay(local_buffer), SharedMetrics(), name="Replay")
    from rlframe.execution.replay_actors import ActorsReplay

    return LocalIterator(partial(ActorsReplay, list(actors or ()), num_async), SharedMetrics(), name="Replay")


class UpdatePriorities:
    """Tells a replay buffer how large the TD errors of the rows were that were just learned from.

    Takes `(batch, {policy id: learner info})`, as TrainOneStep gives it, and gives it on. Touches no counters. Rows of
    policies that were not trained, or whose learner reported no `td_error`, keep their priority.

    Args:
        buffer: The buffer that the batch was drawn from (`update_priorities({policy id: (indexes, td_errors)})`).
        prioritized: With False nothing is done, so that a plan needs no branch.
    """

    def __init__(self, buffer: Any, prioritized: bool = True) -> None:
        self.buffer = buffer
        self.prioritized = prioritized

    def plan_args(self) -> str:
        """Returns whether the operator works at all, for reports."""
        return "" if self.prioritized else "off"

    def __call__(self, item: tuple[Batch, dict[str, Any]]) -> tuple[Batch, dict[str, Any]]:
        """Updates the priorities of the batch's rows and returns the item."""
        if not self.prioritized:
            return item
        priorities = td_errors_by_policy(*item)
        if priorities:
            self.buffer.update_priorities(priorities)
        return item


def td_errors_by_policy(batch: Batch, info: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Returns `{policy id: (batch_indexes, TD errors)}` of a replayed batch: what `update_priorities` takes.

    Left out are policies that were not trained, or whose learner reported no `td_error`, and rows that were drawn
    uniformly, which have no indexes.

    Args:
        batch: What was learned from.
        info: `{policy id: learner info}`.

    Raises:
        ValueError: If there are more or fewer TD errors than rows.
        NonFiniteError: If one is NaN or infinite.
    """
    parts = batch.policy_batches if isinstance(batch, MultiAgentBatch) else {_only_policy(info): batch}
    priorities = {}
    for pid, rows in parts.items():
        td_errors = info[pid].get(_TD_ERROR) if pid in info else None
        if td_errors is None or BATCH_INDEXES not in rows:
            continue
        indexes = _indexes_of(rows)
        if len(indexes) != len(td_errors):
            raise ValueError(
                f"Got {len(td_errors)} TD errors for {len(indexes)} rows of policy {pid!r}, wanted one each: "
                "the loss must report td_error for the whole batch"
            )
        if not np.isfinite(td_errors).all():
            raise NonFiniteError(
                f"Got TD errors of policy {pid!r} that are NaN or infinite, which cannot be priorities: lower the "
                "learning rate, or look for rewards and observations that are not finite"
            )
        priorities[pid] = (indexes, td_errors)
    return priorities


def _indexes_of(rows: SampleBatch) -> Any:
    """Returns which stored rows were drawn; of sequences, for which the loss reports one TD error each, the first."""
    indexes = np.asarray(rows[BATCH_INDEXES])
    if SEQ_LENS not in rows:
        return indexes
    lens = np.asarray(rows[SEQ_LENS])
    return indexes[:: rows.max_seq_len] if rows.zero_padded else indexes[np.cumsum(lens) - lens]


def _only_policy(info: Mapping[str, Any]) -> str:
    return next(iter(info)) if len(info) == 1 else DEFAULT_POLICY_ID
