"""Functions that a `training_iteration` of a program's own is written with: they sample, learn and replay at once.

What an execution plan does by operators, such a method does by calls. Programs know them as parts of
`rlframe.execution.rollout_ops`, `rlframe.execution.train_ops` and `rlframe.utils.replay_buffers.utils`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.execution.multi_gpu_train_ops import MultiGPUTrainOneStep
from rlframe.execution.plan.context import ACTIVE_CONTEXT, STEPS_SAMPLED_COUNTER, agent_steps
from rlframe.execution.plan.local_iterator import in_context_of
from rlframe.execution.plan.remote_sources import RequestRound
from rlframe.execution.rollout_ops import StandardizeFields
from rlframe.execution.train_ops import TrainOneStep, UpdatePriorities

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rlframe.execution.plan.context import Batch


# --- sampling -----------------------------------------------------------------------------------------------------


def synchronous_parallel_sample(
    *workers: Any,
    worker_set: Any = None,
    remote_fn: Callable[[Any], Any] | None = None,
    max_agent_steps: int | None = None,
    max_env_steps: int | None = None,
    concat: bool | None = None,
) -> Any:
    """Returns what all workers sample, in the order of the workers; without remote ones, the local worker samples.

    Counts nothing: the method adds `batch.env_steps()` and `batch.agent_steps()` to `self._counters`.

    Args:
        *workers: The WorkerSet without its name, as Ray 1.11 took it: a list is returned then.
        worker_set: The WorkerSet.
        remote_fn: `fn(worker) -> batch`, called in each worker instead of `worker.sample()`.
        max_agent_steps: Rounds are sampled until they hold so many agent steps; None samples one round.
        max_env_steps: The same in env steps.
        concat: Whether the batches are joined to one; otherwise they are returned as a list. None joins them, unless
            the WorkerSet was given without its name.

    Returns:
        A SampleBatch (with several policies a MultiAgentBatch), or a list of one for each `sample()` of a worker.

    Raises:
        TypeError: If there is no WorkerSet, or more than one.
        ValueError: If both kinds of steps are given.
    """
    given = [*workers, *([] if worker_set is None else [worker_set])]
    if len(given) != 1:
        raise TypeError(f"synchronous_parallel_sample() got {len(given)} WorkerSets, wanted worker_set=self.workers")
    if max_agent_steps is not None and max_env_steps is not None:
        raise ValueError(
            f"Got max_agent_steps={max_agent_steps} and max_env_steps={max_env_steps}, wanted one of the two"
        )
    sample = partial(_sample_round, given[0], remote_fn)
    batches = sample()
    wanted = max_env_steps if max_agent_steps is None else max_agent_steps
    size: Callable[[Any], int] = (lambda batch: int(batch.count)) if max_agent_steps is None else agent_steps
    while wanted is not None and sum(map(size, batches)) < wanted:
        batches += sample()
    metrics = ACTIVE_CONTEXT.metrics
    if metrics is not None:
        metrics.env_steps_handed_out += sum(int(batch.count) for batch in batches)
    if not (concat if concat is not None else not workers):
        return batches
    return _joined(batches)


def _joined(batches: list[Any]) -> Batch:
    joined: Batch = batches[0] if len(batches) == 1 else SampleBatch.concat_samples(batches)
    return joined


def _sample_round(workers: Any, remote_fn: Callable[[Any], Any] | None) -> list[Any]:
    """Returns one batch of each worker that samples."""
    remote = workers.remote_workers()
    if not remote:
        local = workers.local_worker()
        return [local.sample() if remote_fn is None else local.apply(remote_fn)]
    metrics = ACTIVE_CONTEXT.metrics
    told = None if metrics is None else {"timestep": metrics.counters[STEPS_SAMPLED_COUNTER]}

    def request(worker: Any) -> Any:
        workers.update_worker(worker, told)  # schedules of exploration follow the sum of all workers' steps
        return worker.sample.remote() if remote_fn is None else worker.apply.remote(remote_fn)

    batches: list[Any] = RequestRound(request).collect(remote) or []
    return batches


def standardize_fields(samples: Batch, fields: Sequence[str]) -> Batch:
    """Makes columns zero-mean and unit-variance, for each policy on its own; see `StandardizeFields`.

    Args:
        samples: The batch; its columns are replaced in place. Policies without one of them are left as they are.
        fields: Names of the columns.

    Returns:
        The batch.

    Raises:
        KeyError: If no policy has such a column.
    """
    parts = list(samples.policy_batches.values()) if isinstance(samples, MultiAgentBatch) else [samples]
    missing = [field for field in fields if parts and not any(field in rows for rows in parts)]
    if missing:
        raise KeyError(f"Got no column {missing[0]!r} to standardise, only {sorted(parts[0])}")
    for rows in parts:
        StandardizeFields([field for field in fields if field in rows])(rows)
    return samples


# --- learning -----------------------------------------------------------------------------------------------------


class _OneStep(TrainOneStep):
    """TrainOneStep that sends no weights: the program says when, by `self.workers.sync_weights()`."""

    def __init__(self, workers: Any, **arguments: Any) -> None:
        super().__init__(workers, **arguments)
        self._remote = ()


class _MultiGPUOneStep(MultiGPUTrainOneStep):
    """The same of MultiGPUTrainOneStep."""

    def __init__(self, workers: Any, **arguments: Any) -> None:
        super().__init__(workers, **arguments)
        self._remote = ()


class LearnerSteps:
    """The operators behind a trainer's `train_one_step`, kept for the random order of their minibatches."""

    def __init__(self) -> None:
        self._steps: dict[str, TrainOneStep] = {}
        self._saved: dict[str, Any] = {}

    def step(self, trainer: Any, kind: type[TrainOneStep], policies: Sequence[str]) -> TrainOneStep:
        """Returns the operator that trains these policies in this way."""
        name = f"{kind.__name__}:{','.join(policies)}"
        if name not in self._steps:
            config = trainer.config
            arguments = {} if kind is _OneStep else {"shuffle_sequences": config.get("shuffle_sequences", True)}
            self._steps[name] = kind(
                trainer.workers,
                policies=policies,
                num_sgd_iter=config.get("num_sgd_iter") or 1,
                sgd_minibatch_size=config.get("sgd_minibatch_size") or 0,
                **arguments,
            )
            if name in self._saved:
                self._steps[name].set_state(self._saved.pop(name))
        return self._steps[name]

    def get_state(self) -> dict[str, Any]:
        """Returns the random streams, by operator."""
        return {**self._saved, **{name: step.get_state() for name, step in self._steps.items()}}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes the streams back."""
        self._steps, self._saved = {}, dict(state)


def learner_steps(trainer: Any) -> LearnerSteps:
    """Returns those of a trainer, made when they are first asked for."""
    made: LearnerSteps = vars(trainer).setdefault("_learner_steps", LearnerSteps())
    return made


def train_one_step(
    trainer: Any, train_batch: Batch, policies_to_train: Sequence[str] | None = None
) -> dict[str, dict[str, Any]]:
    """Learns from a batch on the local worker; `num_sgd_iter` and `sgd_minibatch_size` are read where there are such.

    Counts and times as `TrainOneStep`. Remote workers do not hear of it before `self.workers.sync_weights()`.

    Args:
        trainer: The trainer (`self`).
        train_batch: SampleBatch or MultiAgentBatch.
        policies_to_train: Ids of the policies; all that are to be trained when None.

    Returns:
        `{policy id: learner info}`: what `training_iteration` returns.
    """
    return _learn(trainer, train_batch, _OneStep, policies_to_train)


def multi_gpu_train_one_step(trainer: Any, train_batch: Batch) -> dict[str, dict[str, Any]]:
    """Does what `train_one_step` does, on the devices that the config names; a pass has full minibatches only.

    Args:
        trainer: The trainer (`self`).
        train_batch: SampleBatch or MultiAgentBatch.

    Returns:
        `{policy id: learner info}`.
    """
    return _learn(trainer, train_batch, _MultiGPUOneStep, None)


def _learn(
    trainer: Any, batch: Batch, kind: type[TrainOneStep], policies: Sequence[str] | None
) -> dict[str, dict[str, Any]]:
    with in_context_of(trainer):
        return learner_steps(trainer).step(trainer, kind, tuple(policies or ()))(batch)[1]


# --- replay -------------------------------------------------------------------------------------------------------


def update_priorities_in_replay_buffer(
    replay_buffer: Any, config: Mapping[str, Any], train_batch: Batch, train_results: Mapping[str, Any]
) -> None:
    """Tells a buffer the TD errors of the rows that were just learned from; see `UpdatePriorities`.

    Args:
        replay_buffer: The buffer; one that draws uniformly is left alone.
        config: Not needed; accepted because programs pass it.
        train_batch: What the buffer gave.
        train_results: What `train_one_step` returned.
    """
    del config
    UpdatePriorities(replay_buffer)((train_batch, dict(train_results)))


def sample_min_n_steps_from_buffer(
    replay_buffer: Any, min_steps: int, count_by_agent_steps: bool = False
) -> Batch | None:
    """Returns replayed transitions, so many steps at least; None where the buffer does not give any yet.

    Args:
        replay_buffer: A buffer with `sample(number of transitions)`.
        min_steps: Env steps.
        count_by_agent_steps: Count agent steps instead.
    """
    batches: list[Any] = []
    steps = 0
    while steps < min_steps:
        batch = replay_buffer.sample(min_steps - steps)
        if batch is None or not batch.count:
            return None
        batches.append(batch)
        steps += agent_steps(batch) if count_by_agent_steps else int(batch.count)
    return _joined(batches)
