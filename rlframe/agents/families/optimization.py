"""Keys of the learner step that algorithms of several families have."""

from __future__ import annotations

from collections.abc import Sequence

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
        None, "Largest global norm of the gradient; None does not clip.", above=0, infinite=True
    )
