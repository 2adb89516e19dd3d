"""Algorithms that learn from data which the replay buffer holds as a whole: their keys, how data come in, the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rlframe.agents.families.off_policy import OffPolicyConfig
from rlframe.config.common import CommonConfig
from rlframe.data.columns import ACTIONS, DONES, NEXT_OBS, OBS, REWARDS, TERMINATEDS
from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.plan.context import (
    AGENT_STEPS_SAMPLED_COUNTER,
    STEPS_SAMPLED_COUNTER,
    _get_shared_metrics,
    agent_steps,
)
from rlframe.execution.train_ops import Replay, TrainOneStep, UpdatePriorities, UpdateTargetNetwork
from rlframe.offline.input_reader import ShuffledInput
from rlframe.offline.io_context import IOContext
from rlframe.offline.sources import make_reader
from rlframe.utils.errors import ConfigError, DataError

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet
    from rlframe.execution.iterators import LocalIterator

#: Of a row: what was done in the step behind it, and whether the data have that step.
NEXT_ACTIONS, NEXT_ACTIONS_KNOWN = "next_actions", "next_actions_known"


class OfflineConfig(OffPolicyConfig):
    """Learns from all rows of `input`, which the replay buffer holds; nothing is sampled."""

    unsupported: ClassVar[Any] = CommonConfig.unsupported
    new_defaults: ClassVar[Any] = {"input_evaluation": [], "learning_starts": 0, "timesteps_per_iteration": 25_600}

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        if self.model.use_lstm or self.model.use_attention:
            yield (
                "model: this algorithm learns from single rows of data; leave use_lstm and use_attention False, and "
                "stack past observations in the data where one does not say enough"
            )

    def remarks(self) -> Iterator[str]:
        """Yields remarks on keys that are not read: programs hand whole configs over."""
        yield from super().remarks()
        if self.get("training_intensity") is not None:
            yield (
                f"training_intensity={self['training_intensity']} has no effect without sampling: "
                "timesteps_per_iteration says how many rows an iteration learns from"
            )
        if self.shuffle_buffer_size > 0:
            yield (
                f"shuffle_buffer_size={self.shuffle_buffer_size} has no effect: all rows are in the replay buffer, "
                "from which any of them is drawn"
            )


def load_data(trainer: Any, complete: Callable[[SampleBatch], SampleBatch] | None = None) -> None:
    """Reads all rows of a trainer's `input` into its replay buffer.

    Args:
        trainer: The trainer.
        complete: Takes all rows of a policy, in the data's order, and returns them with further columns.

    Raises:
        DataError: If rows lack a column that learning needs.
        ConfigError: If `input` is nothing that can be read as a whole, or the buffer is too small for all of it.
    """
    config, buffer = trainer.config, trainer.local_replay_buffer
    rows: dict[str, int] = {}
    read: dict[str, list[SampleBatch]] = {}
    for batch in _batches_of(trainer):
        for pid, part in _by_policy(batch).items():
            _check_columns(part)
            rows[pid] = rows.get(pid, 0) + part.count
            _check_room(max(rows.values()), int(config["replay_buffer_config"]["capacity"]))
            if complete is not None:
                read.setdefault(pid, []).append(part)
        if complete is None:
            buffer.add_batch(batch)
    if not rows:
        raise DataError(f"input={config['input']!r}: found no rows, wanted those to learn from")
    if complete is not None:
        made = {pid: complete(SampleBatch.concat_samples(parts)) for pid, parts in read.items()}
        buffer.add_batch(MultiAgentBatch(made, max(rows.values())))
    buffer.learning_starts = min(buffer.learning_starts, buffer.num_added)  # nothing is added later


def _batches_of(trainer: Any) -> Iterator[SampleBatch | MultiAgentBatch]:
    """Yields what `input` holds, once."""
    source = trainer.config["input"]
    reader: Any = None
    if source != "sampler":
        worker = trainer.workers.local_worker()
        reader = make_reader(source, IOContext(trainer.logdir, trainer.config, 0, worker))
        if isinstance(reader, ShuffledInput):  # the order does not matter where all is read
            reader = reader.child
    if not callable(getattr(reader, "read_all_files", None)):
        raise ConfigError(
            f"input={source!r}: {type(trainer).__name__} learns from data that it holds as a whole; set the files that "
            "they are in, as SAC's or another trainer's output writes them, or a function that returns a reader with "
            "read_all_files()"
        )
    yield from reader.read_all_files()


def _by_policy(batch: SampleBatch | MultiAgentBatch) -> dict[str, SampleBatch]:
    return dict(batch.as_multi_agent().policy_batches)


def _check_columns(part: SampleBatch) -> None:
    missing = [name for name in (OBS, ACTIONS, REWARDS, NEXT_OBS) if name not in part]
    if missing or (DONES not in part and TERMINATEDS not in part):
        raise DataError(f"input: got rows with {sorted(part)}, wanted {missing or [DONES]}, too")


def _check_room(rows: int, capacity: int) -> None:
    if rows > capacity:
        raise ConfigError(
            f"replay_buffer_config.capacity: got {capacity}, and data of more rows than that; all of them are held: "
            "raise it"
        )


def with_next_actions(rows: SampleBatch) -> SampleBatch:
    """Returns rows with `next_actions`, and with `next_actions_known`, where the data have the step that follows.

    A step follows where the next row begins with the observation that the row ended with.

    Args:
        rows: All rows of a policy, in the order in which they were sampled.
    """
    obs, reached = (np.asarray(rows[name]).reshape(rows.count, -1) for name in (OBS, NEXT_OBS))
    known = np.zeros(rows.count, np.float32)
    known[:-1] = (reached[:-1] == obs[1:]).all(axis=1)
    return rows._like({**rows, NEXT_ACTIONS: np.roll(rows[ACTIONS], -1, axis=0), NEXT_ACTIONS_KNOWN: known})


class CountReplayed:
    """Item in and out: a batch. Counts its steps as sampled: what a result and its limits go by."""

    def __call__(self, batch: SampleBatch | MultiAgentBatch) -> SampleBatch | MultiAgentBatch:
        """Counts a batch and returns it."""
        counters = _get_shared_metrics().counters
        counters[STEPS_SAMPLED_COUNTER] += batch.count
        counters[AGENT_STEPS_SAMPLED_COUNTER] += agent_steps(batch)
        return batch


def offline_plan(workers: WorkerSet, config: OffPolicyConfig, local_replay_buffer: Any) -> LocalIterator[Any]:
    """Replays, learns, re-prioritises where rows have priorities, moves the targets; nothing is sampled.

    Args:
        workers: The WorkerSet.
        config: The trainer's config.
        local_replay_buffer: The buffer, as the trainer made it; see `load_data`.
    """
    config = OffPolicyConfig.view(config)
    learn = Replay(local_buffer=local_replay_buffer).for_each(CountReplayed()).for_each(TrainOneStep(workers))
    if config.get("prioritized_replay"):
        learn = learn.for_each(UpdatePriorities(local_replay_buffer))
    learn = learn.for_each(UpdateTargetNetwork(workers, config.target_network_update_freq, by_steps_trained=True))
    return StandardMetricsReporting(learn, workers, config, by_steps_trained=True)
