"""Keys of the learner step that algorithms of several families have."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from rlframe.config.common import CommonConfig
from rlframe.config.options import option


class LearningRateScheduleConfig(CommonConfig):
    """A learning rate that changes with the steps sampled."""

    lr_schedule: Sequence[Sequence[float]] | None = option(
        None, "Points [env step, learning rate], linear between them; None keeps lr.", wanted="a list of [step, value]"
    )


class GradientClippingConfig(CommonConfig):
    """A bound on the size of a learner step."""

    grad_clip: float | None = option(
        None, "Largest global norm of the gradient; None or 0 does not clip.", low=0, infinite=True
    )


class AdamEpsilonConfig(CommonConfig):
    """The one Adam of a policy with one network."""

    adam_epsilon: float = option(1e-8, "Adam's ε.", above=0)


class WholeRoundConfig(CommonConfig):
    """Several steps are done on each train batch, which one round of all workers collects."""

    def derived(self) -> dict[str, Any]:
        """Returns fragments that fit the train batch: one round of all workers then gives a whole one."""
        rows = max(self.num_workers, 1) * self.num_envs_per_worker
        if self.batch_mode != "truncate_episodes" or self.train_batch_size % (rows * self.rollout_fragment_length) == 0:
            return super().derived()
        return {**super().derived(), "rollout_fragment_length": math.ceil(self.train_batch_size / rows)}


class MinibatchConfig(WholeRoundConfig):
    """Several passes over what was sampled last, in minibatches."""

    sgd_minibatch_size: int = option(
        128, "Rows of one learner step; 0 takes the whole train batch.", unit="rows", low=0
    )
    num_sgd_iter: int = option(30, "Passes over a train batch.", low=1)
    shuffle_sequences: bool = option(True, "Each pass takes the rows in a new random order.")

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        if self.sgd_minibatch_size > self.train_batch_size:
            yield (
                f"sgd_minibatch_size={self.sgd_minibatch_size} must be at most train_batch_size={self.train_batch_size}"
            )
