"""RLlib's samplers, which sampled for a worker: its environments, asked for batches apart from `RolloutWorker.sample`.

A worker has one runner of its own for its environments. A sampler has another one for the same environments: sample
with one of them only.
"""

from __future__ import annotations

import copy
import queue
import threading
from abc import ABC, abstractmethod
from typing import Any

from rlframe.config.common import CommonConfig
from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.evaluation.callbacks import make_callbacks, overridden_hooks
from rlframe.evaluation.metrics import RolloutMetrics, part_estimates
from rlframe.evaluation.worker_building import make_runner

Batch = SampleBatch | MultiAgentBatch
#: Seconds after which a sampler that waits in its thread looks whether it was stopped.
_POLL_S = 0.1
#: The config's keys by the samplers' names of them.
_KEYS = {
    "clip_rewards": "clip_rewards",
    "rollout_fragment_length": "rollout_fragment_length",
    "horizon": "horizon",
    "normalize_actions": "normalize_actions",
    "clip_actions": "clip_actions",
    "soft_horizon": "soft_horizon",
    "no_done_at_end": "no_done_at_end",
    "render": "render_env",
}


class SamplerInput(ABC):
    """Where batches come from."""

    def next(self) -> Batch:
        """Returns the next batch, and further ones that are there, as one."""
        batches = [self.get_data(), *self.get_extra_batches()]
        joined: Batch = type(batches[0]).concat_samples(batches) if len(batches) > 1 else batches[0]
        return joined

    @abstractmethod
    def get_data(self) -> Batch:
        """Returns the next batch."""

    @abstractmethod
    def get_metrics(self) -> list[RolloutMetrics]:
        """Returns the episodes that ended since the last call."""

    @abstractmethod
    def get_extra_batches(self) -> list[Batch]:
        """Returns further batches that are there."""


class SyncSampler(SamplerInput):
    """Samples when it is asked.

    Args:
        worker: The `RolloutWorker` whose environments and policies these are.
        env: Not used: the worker's environments are stepped.
        callbacks: In place of the worker's.
        count_steps_by: "env_steps" or "agent_steps", with several agents.
        multiple_episodes_in_batch: False for batches of complete episodes.
        observation_fn: In place of the config's, with several agents.
        **options: `clip_rewards`, `rollout_fragment_length`, `horizon`, `normalize_actions`, `clip_actions`,
            `soft_horizon`, `no_done_at_end` and `render`, in place of the config's. Others are not used.
    """

    def __init__(
        self,
        *,
        worker: Any,
        env: Any = None,
        callbacks: Any = None,
        count_steps_by: str | None = None,
        multiple_episodes_in_batch: bool | None = None,
        observation_fn: Any = None,
        **options: Any,
    ) -> None:
        del env
        changes = {key: options[name] for name, key in _KEYS.items() if name in options}
        if multiple_episodes_in_batch is not None:
            changes["batch_mode"] = "truncate_episodes" if multiple_episodes_in_batch else "complete_episodes"
        several = {"count_steps_by": count_steps_by, "observation_fn": observation_fn}
        multiagent = dict(worker.policy_config.multiagent)
        multiagent.update({key: value for key, value in several.items() if value is not None})
        self._worker = copy.copy(worker)
        self._worker.policy_config = CommonConfig.view({**worker.policy_config, **changes, "multiagent": multiagent})
        if callbacks is not None:
            self._worker.callbacks = make_callbacks(callbacks)
            self._worker._hooks = overridden_hooks(self._worker.callbacks)
        self._worker.runner = make_runner(self._worker, self._worker._hooks)
        self._worker._data = None  # it samples, whatever the worker reads or writes

    def get_data(self) -> Batch:
        """Returns a batch of `rollout_fragment_length` steps of each environment."""
        batch: Batch = self._worker.sample()
        return batch

    def get_metrics(self) -> list[RolloutMetrics]:
        """Returns the episodes that ended since the last call."""
        metrics, _ = part_estimates(self._worker.get_metrics())
        return metrics

    def get_extra_batches(self) -> list[Batch]:
        """Returns `[]`: batches are made when they are asked for."""
        return []


class AsyncSampler(threading.Thread, SamplerInput):
    """Samples in a thread, a few batches ahead; `start()` it first.

    Weights that change meanwhile are those that it acts with from the next step on.

    Attributes:
        shutdown: Set it to True to end the thread.

    Args:
        worker: See `SyncSampler`.
        blackhole_outputs: Samples and drops what it has: for tests of speed.
        **options: See `SyncSampler`.
    """

    def __init__(self, *, worker: Any, blackhole_outputs: bool = False, **options: Any) -> None:
        super().__init__(name="rlframe-sampler", daemon=True)
        self._inner = SyncSampler(worker=worker, **options)
        self._blackhole = blackhole_outputs
        self._batches: queue.Queue[Batch] = queue.Queue(maxsize=5)
        self._error: BaseException | None = None
        self._metrics: queue.Queue[RolloutMetrics] = queue.Queue()
        self.shutdown = False

    def run(self) -> None:
        """Samples until it is stopped; what is raised, `get_data` raises."""
        try:
            while not self.shutdown:
                batch = self._inner.get_data()
                for episode in self._inner.get_metrics():
                    self._metrics.put(episode)
                if not self._blackhole:
                    self._put(batch)
        except BaseException as error:
            self._error = error

    def _put(self, batch: Batch) -> None:
        while True:
            try:
                self._batches.put(batch, timeout=_POLL_S)
            except queue.Full:
                if self.shutdown:
                    return
                continue
            return

    def get_data(self) -> Batch:
        """Returns the oldest batch, once there is one.

        Raises:
            Exception: What the thread raised, behind the batches that it sampled before.
            RuntimeError: If the thread does not run, and has left nothing.
        """
        while True:
            try:
                return self._batches.get(timeout=_POLL_S)
            except queue.Empty:
                if self.is_alive() or not self._batches.empty():  # it may have put its last one since
                    continue
            if self._error is not None:
                raise self._error
            raise RuntimeError("The sampler's thread does not run: call start() first.")

    def get_metrics(self) -> list[RolloutMetrics]:
        """Returns the episodes that ended since the last call."""
        return [self._metrics.get() for _ in range(self._metrics.qsize())]

    def get_extra_batches(self) -> list[Batch]:
        """Returns the other batches that are there."""
        found: list[Batch] = []
        while not self._batches.empty():
            found.append(self.get_data())
        return found
