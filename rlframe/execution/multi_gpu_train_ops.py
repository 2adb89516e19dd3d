"""RLlib's operator for training in minibatches on several devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlframe.data.sample_batch import SampleBatch
from rlframe.execution.train_ops import TrainOneStep


class MultiGPUTrainOneStep(TrainOneStep):
    """TrainOneStep with the arguments of RLlib's operator for several devices.

    Takes a SampleBatch or MultiAgentBatch; gives `(batch, {policy id: learner info})`. The same counters and timers. A
    pass learns from full minibatches only: rows that fill none are left out of this pass (not of the next, which has
    another order), as long as there is one full minibatch.

    Args:
        workers: The WorkerSet.
        sgd_minibatch_size: Rows per learner step.
        num_sgd_iter: Passes over the batch.
        num_gpus: Not needed; policies learn on the devices that their config names. Accepted because RLlib's plans pass
            it.
        shuffle_sequences: Whether each pass has a new random order.
        policies: Ids of the policies to train; all that are to be trained when empty.
        framework: Not needed; accepted because RLlib's plans pass it.
        between_passes: As in `TrainOneStep`.
        _fake_gpus: As `framework`.
        **of_batches: As `framework`: rollout_fragment_length, num_envs_per_worker, train_batch_size, which releases
            before 1.8 passed, then as `TrainTFMultiGPU`.

    Raises:
        TypeError: If other arguments are given.
    """

    _drop_remainder = True

    def __init__(  # noqa: PLR0913 - plans pass these, by the names they have in RLlib
        self,
        workers: Any,
        *,
        sgd_minibatch_size: int,
        num_sgd_iter: int,
        num_gpus: float = 0,
        shuffle_sequences: bool = True,
        policies: Sequence[str] = (),
        framework: str = "torch",
        between_passes: Callable[[Any, SampleBatch], SampleBatch] | None = None,
        _fake_gpus: bool = False,
        **of_batches: int,
    ) -> None:
        del framework, num_gpus, _fake_gpus
        unknown = sorted(of_batches.keys() - {"rollout_fragment_length", "num_envs_per_worker", "train_batch_size"})
        if unknown:
            raise TypeError(
                f"{type(self).__name__} got {', '.join(unknown)}; wanted sgd_minibatch_size, num_sgd_iter, ..."
            )
        super().__init__(workers, policies, num_sgd_iter, sgd_minibatch_size, between_passes)
        self._shuffle = shuffle_sequences
