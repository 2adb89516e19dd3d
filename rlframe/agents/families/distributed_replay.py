"""Ape-X: workers sample, shards store and replay, a thread learns, and nobody waits; the keys, and the plan."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

from rlframe.agents.families.off_policy import (
    NStepConfig,
    PrioritizedReplayConfig,
    ReplayActorConfig,
    TrainingIntensityConfig,
    alternating_plan,
)
from rlframe.config.common import Number
from rlframe.config.options import Section, option, section
from rlframe.execution.concurrency_ops import Concurrently, Dequeue, Enqueue
from rlframe.execution.learner.replay import ReplayLearnerThread, ReplayResult
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.plan.context import (
    AGENT_STEPS_TRAINED_COUNTER,
    LAST_TARGET_UPDATE_TS,
    LEARNER_INFO,
    NUM_TARGET_UPDATES,
    STEPS_SAMPLED_COUNTER,
    STEPS_TRAINED_COUNTER,
    STEPS_TRAINED_THIS_ITER_COUNTER,
    _get_global_vars,
    _get_shared_metrics,
    _NextValueNotReady,
)
from rlframe.execution.replay_shards import ReplayShards
from rlframe.execution.rollout_ops import ParallelRollouts
from rlframe.execution.train_ops import BeforeLearn, Replay, StoreToReplayBuffer
from rlframe.replay.registry import buffer_arguments
from rlframe.utils.seeding import derive_seed, entropy_seed

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet
    from rlframe.execution.iterators import LocalIterator

#: Seconds of an iteration with remote workers where `min_iter_time_s` says none: RLlib's.
ITER_TIME_S = 30
#: Fragments that each worker, and batches that each shard, is asked for ahead.
_FRAGMENTS_AHEAD, _BATCHES_AHEAD = 2, 4
#: Replayed batches that one turn puts into the learner's queue.
_MOST_READY = 16


class ApexOptimizerConfig(Section):
    """Options of the plan, in `optimizer`."""

    max_weight_sync_delay: int = option(
        400, "Steps that a worker samples at most before it is sent newer weights.", unit="env steps", low=1
    )
    num_replay_buffer_shards: int = option(
        4, "Parts of the replay buffer, each in a process of its own beside remote workers.", low=1
    )
    debug: bool = option(False, "Results tell more of the first shard, in info.replay_shard_0.")


class DistributedReplayConfig(PrioritizedReplayConfig, NStepConfig, TrainingIntensityConfig):
    """Keys of Ape-X (Horgan et al. 2018), whatever learns."""

    new_defaults = {  # noqa: RUF012
        "num_workers": 32,
        "rollout_fragment_length": 50,
        "train_batch_size": 512,
        "n_step": 3,
        "replay_buffer_config": {"type": "ReplayActor", "capacity": 2_000_000},
        "learning_starts": 50_000,
        "target_network_update_freq": 500_000,
        "timesteps_per_iteration": 25_000,
        "worker_side_prioritization": True,
    }

    replays_shards: ClassVar[bool] = True
    optimizer: ApexOptimizerConfig = section(ApexOptimizerConfig, "Options of the plan.")  # type: ignore[assignment]
    min_iter_time_s: Number | None = option(
        None,
        f"Shortest iteration. None: {ITER_TIME_S} s with remote workers; without, only timesteps_per_iteration counts.",
        unit="s",
        low=0,
        tunable=False,
    )

    training_intensity: float | None = option(
        None,
        "Rows trained per row sampled; None: with remote workers all go as fast as they can, without, one update per "
        "fragment.",
        unit="rows / env step",
        above=0,
    )

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        if self.num_gpus > 1:
            yield f"num_gpus={self.num_gpus} is for batches that are shared out; the one learner takes num_gpus=1"
        shards = self.optimizer.num_replay_buffer_shards
        capacity = (self.replay_buffer_config or {}).get("capacity", shards)
        if isinstance(capacity, int) and capacity < shards:
            yield (
                f"replay_buffer_config.capacity={capacity} leaves nothing for some of "
                f"optimizer.num_replay_buffer_shards={shards}"
            )


def make_replay_shards(config: Mapping[str, Any], seed: int) -> ReplayShards:
    """Returns the shards that a config describes: Ray actors where there are remote workers, else in this process.

    Args:
        config: Reads `optimizer`, `num_workers`, and what says how to store and draw; its buffer may have any type.
        seed: The run's seed.
    """
    stored = config.get("replay_buffer_config") or ReplayActorConfig.defaults()
    arguments = buffer_arguments({**config, "replay_buffer_config": stored})
    shards = ApexOptimizerConfig.view(config["optimizer"]).num_replay_buffer_shards
    return ReplayShards(arguments, shards, derive_seed(seed, "replay"), remote=bool(config["num_workers"]))


#: Shards of plans that were given none, by workers: a plan that is built anew after a failure finds them again.
_SHARDS: weakref.WeakKeyDictionary[Any, ReplayShards] = weakref.WeakKeyDictionary()


def apex_execution_plan(
    workers: WorkerSet, config: Mapping[str, Any], *, local_replay_buffer: ReplayShards | None = None
) -> LocalIterator[Any]:
    """Lets (1) workers fill the shards, (2) shards fill the learner's queue, (3) priorities go back to the shards.

    Without remote workers one process does it all in turn.

    Args:
        workers: The WorkerSet.
        config: The trainer's config, of Ape-X or of another algorithm that replays.
        local_replay_buffer: The shards, as a trainer makes them for this plan. A plan of a program's own that calls
            this one need not have any: the shards are then the workers', and in no checkpoint.
    """
    config = DistributedReplayConfig.view(config)
    shards = local_replay_buffer
    if shards is None:
        seed = entropy_seed() if config["seed"] is None else int(config["seed"])
        shards = _SHARDS.setdefault(workers, make_replay_shards(config, seed))
    told = _ApexMetrics(workers, config, shards)
    if not workers.remote_workers():
        before = [BeforeLearn(workers, config)]
        return alternating_plan(workers, config, shards, before_learning=before, by_steps_trained=True).for_each(told)
    learner = ReplayLearnerThread(
        workers.local_worker(), after_step=UpdateTargets(workers, config["target_network_update_freq"])
    )
    learner.end_with(workers)
    # With what is sampled while the shards fill up, too, so that iterations end then.
    train = Concurrently(_branches(workers, config, shards, learner), mode="async", output_indexes=[0, 2])
    remote = workers.remote_workers()
    results = StandardMetricsReporting(
        train,
        workers,
        config,
        selected_workers=remote[-len(remote) // 3 :],  # the last third, which explores least
        asynchronous_iter_time_s=ITER_TIME_S,
    )
    return results.within(learner).for_each(learner.add_learner_metrics).for_each(told)


apex_execution_plan.make_replay_buffer = make_replay_shards  # type: ignore[attr-defined]  # what trainers make for it


def _branches(
    workers: WorkerSet, config: DistributedReplayConfig, shards: ReplayShards, learner: ReplayLearnerThread
) -> list[LocalIterator[Any]]:
    """Returns the three branches that run side by side: sampled fragments, replayed batches, learned ones."""
    options, actors = ApexOptimizerConfig.view(config["optimizer"]), shards.actors()
    pace = _Pace(config, learner)
    sampled = (
        ParallelRollouts(workers, mode="async", num_async=_FRAGMENTS_AHEAD)
        .transform(_Paced(pace.may_sample))
        .zip_with_source_actor()
        .for_each(UpdateWorkerWeights(learner, workers, options.max_weight_sync_delay))
        .for_each(_without_source)
        .for_each(StoreToReplayBuffer(actors=actors, seed=shards.seed, blocking=False))
        .transform(_WhileFillingUp(config["learning_starts"]))
    )
    replayed = (
        Replay(actors=actors, num_async=_BATCHES_AHEAD)
        .transform(_Paced(pace.may_learn))
        .zip_with_source_actor()
        .for_each(_BeforeLearnFromShard(workers, config))
        .for_each(Enqueue(learner.inqueue))
        .transform(_AllReady())
    )
    learned = Dequeue(learner.outqueue, check=learner.check).for_each(RecordReplayed(learner))
    return [sampled, replayed, learned]


def _without_source(item: tuple[Any, Any]) -> Any:
    return item[1]


class _BeforeLearnFromShard(BeforeLearn):
    """`BeforeLearn` for `(shard, batch)`."""

    def __call__(self, item: tuple[Any, Any]) -> tuple[Any, Any]:
        return item[0], super().__call__(item[1])


class UpdateWorkerWeights:
    """Has workers get the learner's weights before they sample again, once one of them has sampled enough with its own.

    Takes `(worker, batch)` and gives it on. Counts `num_weight_syncs`.

    Args:
        learner_thread: The learner.
        workers: The WorkerSet.
        max_weight_sync_delay: Env steps that a worker samples at most before newer weights are sent.
    """

    def __init__(self, learner_thread: Any, workers: Any, max_weight_sync_delay: int) -> None:
        self.learner_thread = learner_thread
        self.workers = workers
        self.max_weight_sync_delay = max_weight_sync_delay
        self.steps_since_update: defaultdict[Any, int] = defaultdict(int)

    def plan_args(self) -> str:
        """Returns the delay, for reports."""
        return f"after {self.max_weight_sync_delay} steps"

    def __call__(self, item: tuple[Any, Any]) -> tuple[Any, Any]:
        """Counts the worker's steps, says that weights have changed when it is time, and returns the item."""
        worker, batch = item
        self.steps_since_update[worker] += batch.count
        if self.steps_since_update[worker] < self.max_weight_sync_delay or not self.learner_thread.weights_updated:
            return item
        self.learner_thread.weights_updated = False
        local = self.workers.local_worker()
        with getattr(self.learner_thread, "standing_still", nullcontext)():
            weights = local.get_weights(list(local.policies_to_train))
        self.workers.weights_changed(list(weights), _get_global_vars(), weights=weights)
        self.steps_since_update.clear()
        _get_shared_metrics().counters["num_weight_syncs"] += 1
        return item


class UpdateTargets:
    """Lets policies update their target networks behind learner steps, in the learner's thread.

    Takes `(env steps learned from, learner infos)` and gives it on. Counts `num_target_updates` and sets
    `last_target_update_ts`.

    Args:
        workers: The WorkerSet. The local worker alone is kept: the thread must not keep the others alive when a program
            drops its trainer.
        target_network_update_freq: Targets are updated when more than this many steps were learned from since; with 0,
            behind each learner step.
    """

    def __init__(self, workers: Any, target_network_update_freq: int) -> None:
        self._local_worker = workers.local_worker()
        self.target_network_update_freq = target_network_update_freq
        self._trained = self._last = 0

    def __call__(self, item: tuple[int, Any]) -> tuple[int, Any]:
        """Counts the steps, updates the targets when it is time, and returns the item."""
        self._trained += item[0]
        if self.target_network_update_freq <= 0 or self._trained - self._last > self.target_network_update_freq:
            local = self._local_worker
            for policy_id in local.policies_to_train:
                local.policy_map[policy_id].update_target()
            self._last = self._trained
            counters = _get_shared_metrics().counters
            counters[NUM_TARGET_UPDATES] += 1
            counters[LAST_TARGET_UPDATE_TS] = self._trained
        return item

    def get_state(self) -> dict[str, Any]:
        """Returns the steps learned from, in all and at the last update."""
        return {"trained": self._trained, "last": self._last}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes these back."""
        self._trained, self._last = int(state["trained"]), int(state["last"])


class RecordReplayed:
    """Sends priorities to the shards that batches came from, and counts what was learned.

    Takes a `ReplayResult`; gives `(env steps, {policy id: learner info})`. Counts `num_steps_trained`,
    `num_steps_trained_this_iter` and `num_agent_steps_trained`; sets `info["learner"]`; times `learner_dequeue`,
    `learner_grad` and `learner_overall`.

    Args:
        learner: The learner whose results these are; it is told the count of env steps.
    """

    def __init__(self, learner: ReplayLearnerThread) -> None:
        self.learner = learner

    def __call__(self, learned: ReplayResult) -> tuple[int, Mapping[str, Any]]:
        """Sends and counts."""
        if learned.priorities:
            learned.source.update_priorities.remote(learned.priorities)
        metrics, learner = _get_shared_metrics(), self.learner
        metrics.counters[STEPS_TRAINED_COUNTER] += learned.env_steps
        metrics.counters[STEPS_TRAINED_THIS_ITER_COUNTER] += learned.env_steps
        metrics.counters[AGENT_STEPS_TRAINED_COUNTER] += learned.agent_steps
        metrics.info[LEARNER_INFO] = learned.infos
        metrics.timers["learner_dequeue"] = learner.queue_timer
        metrics.timers["learner_grad"] = learner.grad_timer
        metrics.timers["learner_overall"] = learner.overall_timer
        learner.set_global_vars(_get_global_vars())
        return learned.env_steps, learned.infos


class _Pace:
    """Whether it is the samplers' or the learner's turn, so that `training_intensity` is met; without it, always both.

    Sampling goes on while the learner has nothing to do, as after a restore without the replay buffer.
    """

    def __init__(self, config: DistributedReplayConfig, learner: ReplayLearnerThread) -> None:
        self.learner = learner
        self._intensity = config.get("training_intensity")
        self._starts = config["learning_starts"]
        self._rows = config["train_batch_size"]

    def _owed(self) -> float:
        """Returns how many rows are to be learned from for the steps sampled so far, less those that were."""
        counters = _get_shared_metrics().counters
        wanted = self._intensity * max(0, counters[STEPS_SAMPLED_COUNTER] - self._starts)
        return float(wanted - counters[STEPS_TRAINED_COUNTER])

    def may_sample(self) -> bool:
        """Returns whether fragments may come in."""
        if not self._intensity or self.learner.inqueue.empty():
            return True
        return self._owed() <= float(self._rows * self.learner.inqueue.maxsize)

    def may_learn(self) -> bool:
        """Returns whether one more batch may be put into the learner's queue."""
        if not self._intensity:
            return True
        under_way = self.learner.inqueue.qsize() + self.learner.outqueue.qsize() + 1
        return self._owed() >= float(under_way * self._rows)


class _Paced:
    """Hands on the items of an iterator while it is their turn, and not-ready markers while it is not."""

    plan_name = "pace"

    def __init__(self, may: Callable[[], bool]) -> None:
        self._may = may
        self._next: Callable[[], Any] = _NextValueNotReady

    def __call__(self, items: Iterable[Any]) -> Iterator[Any]:
        self._next = iter(items).__next__
        return self

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self._next() if self._may() else _NextValueNotReady()


class _AllReady(_Paced):
    """Hands on the last one of those items that are ready: of a branch that is to do all it can in its turn."""

    plan_name = "all ready"

    def __init__(self) -> None:
        super().__init__(bool)

    def __next__(self) -> Any:
        last = item = self._next()
        for _ in range(_MOST_READY):
            if isinstance(item, _NextValueNotReady):
                break
            last, item = item, self._next()
        return last


class _WhileFillingUp(_Paced):
    """Hands on stored batches until these are `learning_starts` env steps, and not-ready markers from then on.

    Iterations then end with what was learned, and their results have a learner's info, as in RLlib. Counts from the
    start of the plan, because shards may be empty again then.
    """

    plan_name = "while filling up"

    def __init__(self, learning_starts: int) -> None:
        super().__init__(bool)
        self._missing = learning_starts

    def __next__(self) -> Any:
        item = self._next()
        if isinstance(item, _NextValueNotReady):
            return item
        self._missing -= item.count
        return item if self._missing > 0 else _NextValueNotReady()


class _ApexMetrics:
    """Adds how the workers explore, and the state of the first shard, to a result's `info`."""

    def __init__(self, workers: WorkerSet, config: Mapping[str, Any], shards: ReplayShards) -> None:
        self.workers, self.shards = workers, shards
        self.debug = ApexOptimizerConfig.view(config["optimizer"]).debug

    def __call__(self, result: dict[str, Any]) -> dict[str, Any]:
        result["info"]["exploration_infos"] = self.workers.foreach_trainable_policy(_exploration_of)
        result["info"]["replay_shard_0"] = self.shards.stats(self.debug)
        return result


def _exploration_of(policy: Any, policy_id: str) -> Any:
    del policy_id
    return {key: value for key, value in policy.get_exploration_state().items() if key != "rng"}
