"""Where train batches come from: workers asked by the driver, or by processes that join their fragments."""

from __future__ import annotations

import platform
from functools import partial
from typing import TYPE_CHECKING, Any

from rlframe.execution.mixing_ops import MixInReplay
from rlframe.execution.plan.context import (
    AGENT_STEPS_SAMPLED_COUNTER,
    STEPS_SAMPLED_COUNTER,
    SharedMetrics,
    _get_shared_metrics,
    _NextValueNotReady,
    agent_steps,
)
from rlframe.execution.plan.local_iterator import LocalIterator
from rlframe.execution.plan.remote_sources import AsyncRequests
from rlframe.execution.rollout_ops import ConcatBatches, ParallelRollouts, unpack
from rlframe.utils.seeding import derive_seed, entropy_seed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rlframe.execution.plan.context import Batch

# Train batches that each aggregation worker is asked for ahead.
_AHEAD = 2


def gather_experiences(workers: Any, config: Mapping[str, Any]) -> LocalIterator[Batch]:
    """Gives train batches, from aggregation workers where the config wants some and there are remote workers.

    Counts `num_steps_sampled` and `num_agent_steps_sampled`.

    Args:
        workers: The WorkerSet.
        config: Reads `num_aggregation_workers`, and what the two ways read.
    """
    if config["num_aggregation_workers"] and workers.remote_workers():
        return gather_experiences_tree_aggregation(workers, config)
    return gather_experiences_directly(workers, config)


def gather_experiences_directly(workers: Any, config: Mapping[str, Any]) -> LocalIterator[Batch]:
    """Asks the workers for fragments, and joins them to train batches in this process.

    Counts `num_steps_sampled` and `num_agent_steps_sampled`.

    Args:
        workers: The WorkerSet.
        config: Reads `max_sample_requests_in_flight_per_worker`, `replay_buffer_num_slots`, `replay_proportion`,
            `train_batch_size` and `multiagent.count_steps_by`.
    """
    ahead = config["max_sample_requests_in_flight_per_worker"]
    return train_batches(ParallelRollouts(workers, mode="async", num_async=ahead), config, _seed(workers))


def train_batches(fragments: LocalIterator[Batch], config: Mapping[str, Any], seed: int) -> LocalIterator[Batch]:
    """Unpacks fragments, mixes earlier ones in, and joins them to train batches."""
    # With a thread that unpacks batches ahead, that is left to it.
    if config["num_multi_gpu_tower_stacks"] <= 1 or config["replay_proportion"] > 0:
        fragments = fragments.for_each(unpack)
    if config["replay_proportion"]:
        fragments = fragments.combine(MixInReplay(config["replay_buffer_num_slots"], config["replay_proportion"], seed))
    return fragments.combine(ConcatBatches(config["train_batch_size"], config["multiagent"]["count_steps_by"]))


def _seed(workers: Any) -> int:
    """Returns the seed that choices among batches are derived from."""
    config = getattr(workers.local_worker(), "policy_config", None) or {}
    return entropy_seed() if config.get("seed") is None else int(config["seed"])


# --- aggregation --------------------------------------------------------------------------------------------------


class Aggregator:
    """Asks some workers for fragments and joins them to train batches; lives in a process of its own.

    Args:
        config: See `gather_experiences_directly`.
        rollout_group: The workers that are asked.
        seed: Seed of the choices among earlier batches; None for a fresh one.
    """

    def __init__(self, config: Mapping[str, Any], rollout_group: Sequence[Any], seed: int | None = None) -> None:
        self._workers = list(rollout_group)
        self._news: tuple[Any, Any] | None = None
        self._informed: set[Any] = set()
        ahead = config["max_sample_requests_in_flight_per_worker"]
        source = partial(AsyncRequests, lambda: self._workers, self._request, ahead)
        fragments: LocalIterator[Any] = LocalIterator(source, SharedMetrics(), name="Aggregator")
        seed = entropy_seed() if seed is None else seed
        self._batches = train_batches(fragments.for_each(self._count), config, seed)
        self._sampled = [0, 0]

    def _request(self, worker: Any) -> Any:
        if self._news is not None and worker not in self._informed:
            worker.set_weights.remote(*self._news)
            self._informed.add(worker)
        return worker.sample.remote()

    def _count(self, batch: Batch) -> Batch:
        self._sampled[0] += batch.count
        self._sampled[1] += agent_steps(batch)
        return batch

    def set_weights(self, weights: Any, global_vars: Any) -> None:
        """Takes weights that each worker gets before it samples again."""
        import ray

        self._news = (ray.put(weights), global_vars)
        self._informed = set()

    def next_batch(self) -> tuple[Batch, int, int]:
        """Returns a train batch, and the env steps and agent steps that were sampled since the last one."""
        batch = next(self._batches)
        counts, self._sampled = self._sampled, [0, 0]
        return batch, counts[0], counts[1]

    def get_host(self) -> str:
        """Returns the name of the machine this process is on."""
        return platform.node()


class _AggregatedBatches:
    """Train batches of aggregation workers as they come; the workers live as long as this does."""

    plan_name = "gather_experiences_tree_aggregation"

    def __init__(self, workers: Any, config: Mapping[str, Any], seed: int, timeout_s: float | None) -> None:
        import ray

        actor_class: Any = ray.remote(num_cpus=0)(Aggregator)
        number, remote = config["num_aggregation_workers"], workers.remote_workers()
        self._actors: list[Any] = [
            actor_class.remote(dict(config), remote[index::number], derive_seed(seed, "aggregation", index))
            for index in range(min(number, len(remote)))
        ]
        self._requests = AsyncRequests(lambda: self._actors, partial(_request_batch, workers), _AHEAD, timeout_s)

    def plan_args(self) -> str:
        return f"{len(self._actors)} processes"

    def __iter__(self) -> _AggregatedBatches:
        return self

    def __next__(self) -> Any:
        _get_shared_metrics().check_steps_limit()
        item = next(self._requests)
        if isinstance(item, _NextValueNotReady):
            return item
        batch, env_steps, rows = item
        counters = _get_shared_metrics().counters
        counters[STEPS_SAMPLED_COUNTER] += env_steps
        counters[AGENT_STEPS_SAMPLED_COUNTER] += rows
        return batch

    def close(self) -> None:
        """Ends the processes."""
        import ray

        if ray.is_initialized():
            for actor in self._actors:
                ray.kill(actor, no_restart=True)
        self._actors = []


def _request_batch(workers: Any, aggregator: Any) -> Any:
    workers.update_worker(aggregator)
    return aggregator.next_batch.remote()


def gather_experiences_tree_aggregation(workers: Any, config: Mapping[str, Any]) -> LocalIterator[Batch]:
    """Lets processes of their own ask the workers, and join their fragments to train batches.

    Each has a share of the workers, and hands new weights on to them. Counts `num_steps_sampled` and
    `num_agent_steps_sampled`.

    Args:
        workers: The WorkerSet, with remote workers.
        config: Reads `num_aggregation_workers`, and what `gather_experiences_directly` reads.
    """
    workers.sync_weights()
    workers.sync_before_sampling()
    source = partial(_AggregatedBatches, workers, _plain(config), _seed(workers))
    return LocalIterator(source, SharedMetrics(), name="gather_experiences_tree_aggregation")


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the part of a config that aggregation reads: what else is in it may not travel."""
    keys = (
        "num_aggregation_workers",
        "max_sample_requests_in_flight_per_worker",
        "replay_buffer_num_slots",
        "replay_proportion",
        "train_batch_size",
        "num_multi_gpu_tower_stacks",
    )
    counted = {"count_steps_by": config["multiagent"]["count_steps_by"]}
    return {**{key: config[key] for key in keys}, "multiagent": counted}
