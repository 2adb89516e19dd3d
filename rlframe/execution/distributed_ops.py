"""Learning inside the rollout workers: each from its own rows, with gradients averaged between them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from rlframe.evaluation.policy_states import policy_states, set_policy_states
from rlframe.execution.multi_gpu_train_ops import MultiGPUTrainOneStep
from rlframe.execution.plan.context import (
    AGENT_STEPS_SAMPLED_COUNTER,
    AGENT_STEPS_TRAINED_COUNTER,
    LEARN_ON_BATCH_TIMER,
    LEARNER_INFO,
    STEPS_SAMPLED_COUNTER,
    STEPS_TRAINED_COUNTER,
    STEPS_TRAINED_THIS_ITER_COUNTER,
    SharedMetrics,
    _get_shared_metrics,
    agent_steps,
    policy_parts,
)
from rlframe.execution.plan.local_iterator import LocalIterator
from rlframe.execution.rollout_ops import SelectExperiences, StandardizeFields
from rlframe.execution.train_ops import merge_learner_infos
from rlframe.utils.errors import WorkerError
from rlframe.utils.seeding import make_rng

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class SGDSettings:
    """What a worker does in one round.

    Attributes:
        num_sgd_iter: Passes over the rows.
        sgd_minibatch_size: Rows of a learner step; 0 takes all.
        standardize: Columns that are standardised first.
    """

    num_sgd_iter: int
    sgd_minibatch_size: int
    standardize: tuple[str, ...] = ()


def LearnInWorkers(
    workers: Any, settings: SGDSettings, *, backend: str = "gloo", keep_local_weights_in_sync: bool = True,
    timeout_s: float = 60.0,
) -> LocalIterator[tuple[int, dict[str, Any]]]:  # fmt: skip
    """Lets every worker sample and learn, in step with the others; weights stay equal without being sent.

    Gives `(env steps of all workers, {policy id: learner info})`, where numbers are means over the workers. Counts
    steps sampled and trained; sets `info["learner"]`; times `learn`, which contains sampling. Without remote workers
    the local worker does it alone.

    Args:
        workers: The WorkerSet. Remote workers need the framework's policies (`sample_in_numpy` False).
        settings: What each worker does in a round.
        backend: Backend of `torch.distributed`.
        keep_local_weights_in_sync: Copy the weights to the local worker after each round.
        timeout_s: Seconds that a worker waits for the others at one learner step.

    Raises:
        WorkerError: If the workers do not find each other.
    """
    if not workers.remote_workers():
        return LocalIterator(partial(_LocalLearner, workers, settings), SharedMetrics(), name="LearnInWorkers")
    workers.learns_remotely = True
    connect(workers, backend, timeout_s)
    source = partial(_DecentralizedLearner, workers, settings, keep_local_weights_in_sync)
    return LocalIterator(source, SharedMetrics(), name="LearnInWorkers")


def connect(workers: Any, backend: str, timeout_s: float) -> None:
    """Brings all workers to the state of the one that has learned most, and makes a group of them.

    Raises:
        WorkerError: If the workers do not find each other.
    """
    import ray

    remotes = workers.remote_workers()
    steps = ray.get([worker.apply.remote(_steps_learned) for worker in remotes])
    ahead = remotes[max(range(len(remotes)), key=steps.__getitem__)]
    if max(steps) > 0:  # also where all have learned as often: a worker that died may have left one half a step ahead
        states = ahead.apply.remote(policy_states)
        ray.get([worker.apply.remote(set_policy_states, states) for worker in remotes if worker is not ahead])
    host, port = ray.get([remotes[0].get_node_ip.remote(), remotes[0].find_free_port.remote()])
    address = f"tcp://{host}:{port}"
    calls = [
        worker.apply.remote(_join, address, rank, len(remotes), backend, timeout_s)
        for rank, worker in enumerate(remotes)
    ]
    try:
        ray.get(calls)
    except ray.exceptions.RayTaskError as error:
        raise WorkerError(
            f"the {len(remotes)} workers did not form a torch.distributed group ({backend}) at {address}: {error.cause}"
        ) from error


def _steps_learned(worker: Any) -> int:
    return sum(policy.steps_learned for policy in worker.policy_map.values())


def _join(worker: Any, address: str, rank: int, world_size: int, backend: str, timeout_s: float) -> None:
    from rlframe.policy.torch import distributed

    distributed.join(address, rank, world_size, backend, timeout_s)
    for policy in worker.policy_map.values():
        policy.distributed_world_size = world_size


class _OnlyLocal:
    """The worker itself in the place of a WorkerSet."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker

    def local_worker(self) -> Any:
        return self._worker

    def remote_workers(self) -> Sequence[Any]:
        return ()


def _round_of_many(worker: Any, settings: SGDSettings, global_vars: dict[str, int]) -> tuple[int, int, dict[str, Any]]:
    """Runs on a worker of a group: as `_sample_and_learn`; one that fails leaves the group, so that nobody waits."""
    try:
        return _sample_and_learn(worker, settings, global_vars)
    except BaseException:
        from rlframe.policy.torch import distributed

        distributed.leave()
        raise


def _sample_and_learn(
    worker: Any, settings: SGDSettings, global_vars: dict[str, int]
) -> tuple[int, int, dict[str, Any]]:
    """Runs on a worker: samples and learns; returns env steps, agent steps and learner infos by policy."""
    worker.set_global_vars(global_vars)
    trained = SelectExperiences(worker.policies_to_train)(worker.sample())
    batch = StandardizeFields(settings.standardize)(trained)
    learner = MultiGPUTrainOneStep(
        workers=_OnlyLocal(worker), sgd_minibatch_size=settings.sgd_minibatch_size, num_sgd_iter=settings.num_sgd_iter
    )
    infos = {}
    parts = dict(policy_parts(worker, batch))
    for pid in sorted(worker.policies_to_train):  # all of them, and in one order: every worker must meet the others
        policy, rows = worker.policy_map[pid], parts.get(pid)
        # From the count of steps, so that a restored run draws the same orders without more to remember.
        learner._rng = make_rng(policy._policy_seed, "minibatches", worker.worker_index, global_vars["timestep"])
        steps = []
        for _ in range(settings.num_sgd_iter):
            minibatches = (
                [] if rows is None else list(learner._minibatches(rows, settings.sgd_minibatch_size or rows.count))
            )
            # Every step needs all workers: where some have fewer minibatches, nobody has more.
            for part in minibatches[: policy.agreed_minimum(len(minibatches))]:
                steps.append(policy.learn_on_batch(part))
                policy.steps_learned += 1
        if steps:
            infos[pid] = merge_learner_infos(steps)
    return batch.count, agent_steps(batch), infos


def _record(rounds: Sequence[tuple[int, int, dict[str, Any]]], seconds: float) -> tuple[int, dict[str, Any]]:
    """Counts what one round of all workers has sampled and learned."""
    metrics = _get_shared_metrics()
    env_steps, agents = sum(item[0] for item in rounds), sum(item[1] for item in rounds)
    counters = metrics.counters
    for name in (STEPS_SAMPLED_COUNTER, STEPS_TRAINED_COUNTER, STEPS_TRAINED_THIS_ITER_COUNTER):
        counters[name] += env_steps
    for name in (AGENT_STEPS_SAMPLED_COUNTER, AGENT_STEPS_TRAINED_COUNTER):
        counters[name] += agents
    pids = dict.fromkeys(pid for item in rounds for pid in item[2])
    info = {pid: merge_learner_infos([item[2][pid] for item in rounds if pid in item[2]]) for pid in pids}
    metrics.info[LEARNER_INFO] = info
    timer = metrics.timers[LEARN_ON_BATCH_TIMER]
    timer.push(seconds)
    timer.push_units_processed(env_steps)
    return env_steps, info


def _answers(calls: list[Any]) -> list[Any]:
    """Returns the results of calls that need each other; where one fails, the error of the worker that died."""
    import ray

    from rlframe.evaluation.cluster import answers_of

    answers, failures = answers_of(calls)
    # The others only say that a neighbour is gone.
    for failure in sorted(failures.values(), key=lambda error: not isinstance(error, ray.exceptions.RayActorError)):
        raise failure
    return list(answers.values())


class _LocalLearner:
    """Rounds of the local worker."""

    plan_name = "LearnInWorkers"

    def __init__(self, workers: Any, settings: SGDSettings) -> None:
        self._workers = workers
        self._settings = settings

    def plan_args(self) -> str:
        return "local worker"

    def __iter__(self) -> _LocalLearner:
        return self

    def __next__(self) -> tuple[int, dict[str, Any]]:
        _get_shared_metrics().check_steps_limit()
        started = perf_counter()
        global_vars = {"timestep": _get_shared_metrics().counters[STEPS_SAMPLED_COUNTER]}
        made = _sample_and_learn(self._workers.local_worker(), self._settings, global_vars)
        return _record([made], perf_counter() - started)


class _DecentralizedLearner:
    """Rounds of all remote workers."""

    plan_name = "LearnInWorkers"

    def __init__(
        self, workers: Any, settings: SGDSettings, keeps_local_in_sync: bool, timeout_s: float | None = None
    ) -> None:
        del timeout_s  # a round cannot be left halfway: all workers are in it
        self._workers = workers
        self._settings = settings
        self._keeps_local_in_sync = keeps_local_in_sync
        self._calls: list[Any] = []

    def plan_args(self) -> str:
        return f"{len(self._workers.remote_workers())} workers"

    def __iter__(self) -> _DecentralizedLearner:
        return self

    def __next__(self) -> tuple[int, dict[str, Any]]:
        import ray

        _get_shared_metrics().check_steps_limit()
        started = perf_counter()
        remotes = self._workers.remote_workers()
        global_vars = {"timestep": _get_shared_metrics().counters[STEPS_SAMPLED_COUNTER]}
        # By Ctrl-C the workers are not interrupted: the round that they are in is the next one that is asked for.
        self._calls = self._calls or [
            worker.apply.remote(_round_of_many, self._settings, global_vars) for worker in remotes
        ]
        try:
            rounds = _answers(self._calls)
        except Exception:
            self._calls = []
            raise
        self._calls = []
        made = _record(rounds, perf_counter() - started)
        if self._keeps_local_in_sync:
            self._workers.local_worker().set_weights(ray.get(remotes[0].get_weights.remote()))
        self._workers.local_worker().set_global_vars(
            {"timestep": _get_shared_metrics().counters[STEPS_SAMPLED_COUNTER]}
        )
        return made
