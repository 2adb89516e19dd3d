"""The learner thread with a second one that loads batches ahead."""

from __future__ import annotations

import queue
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any

from rlframe.execution.learner.thread import _POLL_S, LearnerThread

if TYPE_CHECKING:
    from collections.abc import Callable


class MultiGPULearnerThread(LearnerThread):
    """A `LearnerThread` whose batches another thread unpacks ahead; RLlib's name, for one device.

    Args:
        local_worker: The worker whose policies learn.
        num_multi_gpu_tower_stacks: Unpacked batches that may wait.
        minibatch_buffer_size: Batches that are learned from in turn.
        num_sgd_iter: Learner steps on each batch.
        learner_queue_size: Batches, and results, that may wait.
        learner_queue_timeout: Seconds after which a thread that gets no batch gives up.
        snapshot_every: See `BatchLearner`.
        after_step: See `BatchLearner`; called in the learner's thread.
        num_gpus: Not used, as the next three: the policies have their devices, learning rates and batch sizes from
            their config, and one thread loads. Accepted because old programs pass them.
        lr: Not used.
        train_batch_size: Not used.
        num_data_load_threads: Not used.
    """

    plan_name = "MultiGPULearnerThread"

    def __init__(  # noqa: PLR0913 - the first six are RLlib's
        self,
        local_worker: Any,
        num_multi_gpu_tower_stacks: int = 1,
        minibatch_buffer_size: int = 1,
        num_sgd_iter: int = 1,
        learner_queue_size: int = 16,
        learner_queue_timeout: float = 300,
        *,
        snapshot_every: int = 0,
        after_step: Callable[[tuple[int, Any]], Any] | None = None,
        num_gpus: Any = None,
        lr: Any = None,
        train_batch_size: Any = None,
        num_data_load_threads: Any = None,
    ) -> None:
        del num_gpus, lr, train_batch_size, num_data_load_threads
        self.loaded: queue.Queue[Any] = queue.Queue(maxsize=num_multi_gpu_tower_stacks)
        super().__init__(
            local_worker,
            minibatch_buffer_size,
            num_sgd_iter,
            learner_queue_size,
            learner_queue_timeout,
            snapshot_every=snapshot_every,
            after_step=after_step,
        )
        self._loader = threading.Thread(target=self._load, name="rlframe-loader", daemon=True)

    def _source(self) -> queue.Queue[Any]:
        return self.loaded

    def run(self) -> None:
        """Starts the loading thread, and learns until it is stopped or something is raised."""
        self._loader.start()
        super().run()

    def stop(self) -> None:
        """Ends both threads after the learner step at hand."""
        super().stop()
        if self._loader.ident is not None:
            self._loader.join()

    def _load(self) -> None:
        try:
            while not self.stopped:
                self._load_one()
        except BaseException as error:
            self.error = error
            self.stopped = True

    def _load_one(self) -> None:
        started = monotonic()
        try:
            batch = self.inqueue.get(timeout=_POLL_S)
        except queue.Empty:
            return
        self.load_wait_timer.push(monotonic() - started)
        started = monotonic()
        batch = batch.decompress_if_needed()
        self.load_timer.push(monotonic() - started)
        while not self.stopped:
            try:
                self.loaded.put(batch, timeout=_POLL_S)
            except queue.Full:
                continue
            return
