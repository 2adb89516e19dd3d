"""Workers, policies and buffers for plans, which check what they are given and note what is done to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from rlframe.data.sample_batch import DEFAULT_POLICY_ID, MultiAgentBatch, SampleBatch
from rlframe.evaluation.metrics import RolloutMetrics
from rlframe.execution.plan.context import SharedMetrics
from rlframe.execution.plan.local_iterator import LocalIterator


class ListSource:
    """Items of a list (or range), with a position that can be saved; not-ready markers may be among them."""

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = items
        self.position = 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self.position >= len(self.items):
            raise StopIteration
        self.position += 1
        return self.items[self.position - 1]

    def get_state(self) -> dict[str, Any]:
        return {"position": self.position}

    def set_state(self, state: dict[str, Any]) -> None:
        self.position = state["position"]


def iterate(items: Sequence[Any]) -> LocalIterator[Any]:
    """Returns a LocalIterator over the items, with a metrics context of its own."""
    return LocalIterator(lambda: ListSource(items), SharedMetrics())


def make_batch(rows: int, start: int = 0) -> SampleBatch:
    """Returns a batch whose `obs` number the rows from `start`."""
    numbers = np.arange(start, start + rows)
    return SampleBatch(
        {"obs": numbers.astype(np.float32)[:, None], "actions": numbers % 2, "rewards": np.ones(rows, np.float32)}
    )


class FakePolicy:
    """Learns by remembering which rows it saw; insists on SampleBatches with rows."""

    def __init__(self) -> None:
        self.seen: list[list[float]] = []
        self.target_updates = 0
        self.gradients: list[Any] = []
        self.loss = 0.0

    def learn_on_batch(self, samples: SampleBatch) -> dict[str, Any]:
        if not isinstance(samples, SampleBatch):
            raise TypeError(f"wanted a SampleBatch, got {type(samples).__name__}")
        if samples.count == 0:
            raise ValueError("wanted rows, got an empty batch")
        rows = np.asarray(samples["obs"])[:, 0]
        self.seen.append(rows.tolist())
        self.loss += 1.0
        stats = {"loss": self.loss, "min_q": float(rows.min()), "max_q": float(rows.max())}
        return {"learner_stats": stats, "td_error": rows / 10, "model": {}, "custom_metrics": {}}

    def update_target(self) -> None:
        self.target_updates += 1


class FakeWorker:
    """A rollout worker whose rows are numbered through, `rows` per sample.

    Args:
        rows: Rows per `sample()`.
        start: Number of the first row.
        policies: Policy ids; with others than the default one, batches are MultiAgentBatches.
        seed: `policy_config["seed"]`.
        fail_on: Numbers (from 1) of the calls of `sample()` that raise.
    """

    def __init__(
        self,
        rows: int = 4,
        start: int = 0,
        policies: Sequence[str] = (DEFAULT_POLICY_ID,),
        seed: int | None = 0,
        fail_on: Sequence[int] = (),
    ) -> None:
        self.rows = rows
        self.position = start
        self.policy_map = {pid: FakePolicy() for pid in policies}
        self.policies_to_train = list(policies)
        self.policy_config = {"seed": seed}
        self.fail_on = set(fail_on)
        self.samples_taken = 0
        self.global_vars: dict[str, Any] = {"timestep": 0}
        self.weights: dict[str, Any] = {}
        self.episodes: list[RolloutMetrics] = []
        self.applied: list[Any] = []

    def sample(self) -> SampleBatch | MultiAgentBatch:
        self.samples_taken += 1
        if self.samples_taken in self.fail_on:
            raise RuntimeError("the environment broke")
        batch = make_batch(self.rows, self.position)
        self.position += self.rows
        if list(self.policy_map) == [DEFAULT_POLICY_ID]:
            return batch
        return MultiAgentBatch({pid: batch.copy() for pid in self.policy_map}, batch.count)

    def compute_gradients(self, batch: SampleBatch) -> tuple[list[Any], dict[str, Any]]:
        if batch.count == 0:
            raise ValueError("wanted rows, got an empty batch")
        return [np.asarray(batch["obs"]).sum(axis=0), None], {"learner_stats": {"loss": 1.0}}

    def apply_gradients(self, gradients: Any) -> None:
        self.applied.append(gradients)

    def get_metrics(self) -> list[RolloutMetrics]:
        episodes, self.episodes = self.episodes, []
        return episodes

    def get_weights(self, policies: Sequence[str] | None = None) -> dict[str, Any]:
        return dict.fromkeys(policies or self.policy_map, self.samples_taken)

    def set_weights(self, weights: dict[str, Any], global_vars: dict[str, Any] | None = None) -> None:
        unknown = set(weights) - set(self.policy_map)
        if unknown:
            raise KeyError(f"weights of unknown policies {unknown}")
        self.weights = weights
        if global_vars is not None:
            self.set_global_vars(global_vars)

    def set_global_vars(self, global_vars: dict[str, Any]) -> None:
        if set(global_vars) != {"timestep"} or global_vars["timestep"] < self.global_vars["timestep"]:
            raise ValueError(f"wanted a timestep that never goes back, got {global_vars} after {self.global_vars}")
        self.global_vars = dict(global_vars)

    def apply(self, fn: Callable[..., Any], *args: Any) -> Any:
        return fn(self, *args)


class FakeWorkerSet:
    """A worker set with remote workers of the caller's choice (Ray handles, or stand-ins with `.remote`)."""

    def __init__(self, local: FakeWorker | None = None, remotes: Sequence[Any] = ()) -> None:
        self.local = local or FakeWorker()
        self.remotes = list(remotes)
        self.syncs: list[dict[str, Any]] = []

    def local_worker(self) -> FakeWorker:
        return self.local

    def remote_workers(self) -> list[Any]:
        return self.remotes

    def sync_weights(self, policies: list[str] | None = None, global_vars: dict[str, Any] | None = None) -> None:
        self.syncs.append({"policies": policies, "global_vars": global_vars})

    weights_changed = sync_weights
    samples_ahead = False

    def shared_memory_client(self) -> None:
        """Workers of tests write no memory that this process maps."""

    def sync_before_sampling(self) -> None:
        """Weights are sent at once here."""

    def update_worker(self, worker: Any, global_vars: Any = None) -> None:
        """Has them already."""


class FakeBuffer:
    """A replay buffer that gives back what it was given, oldest first and over again; insists on known indexes."""

    def __init__(self, learning_starts: int = 0) -> None:
        self.learning_starts = learning_starts
        self.batches: list[SampleBatch] = []
        self.rows = 0
        self.replayed = 0
        self.updates: list[dict[str, tuple[list[int], list[float]]]] = []

    def add_batch(self, batch: SampleBatch) -> None:
        if batch.count == 0:
            raise ValueError("wanted rows, got an empty batch")
        self.batches.append(batch)
        self.rows += batch.count

    def replay(self) -> MultiAgentBatch | None:
        if self.rows < self.learning_starts or not self.batches:
            return None
        index = self.replayed % len(self.batches)
        self.replayed += 1
        rows = self.batches[index].copy()
        rows["batch_indexes"] = np.arange(rows.count) + 100 * index
        return MultiAgentBatch({DEFAULT_POLICY_ID: rows}, rows.count)

    def update_priorities(self, priorities: dict[str, Any]) -> None:
        for pid, (indexes, td_errors) in priorities.items():
            if len(indexes) != len(td_errors):
                raise ValueError(f"{len(indexes)} indexes for {len(td_errors)} errors of {pid}")
            if indexes.max() // 100 >= len(self.batches):
                raise ValueError("an index that was never given out")
        self.updates.append({pid: (i.tolist(), list(e)) for pid, (i, e) in priorities.items()})


def episode(reward: float, length: int = 10, **custom: float) -> RolloutMetrics:
    """Returns what a finished episode reports."""
    return RolloutMetrics(length, reward, {("agent0", DEFAULT_POLICY_ID): reward}, custom_metrics=dict(custom))
