"""Uniformly random actions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.exploration.exploration import Array, Exploration, count_rows, greedy, no_logp
from rlframe.exploration.uniform import valid_logp, valid_sampler

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rlframe.exploration.exploration import ExplorationArgs


class Random(Exploration):
    """Draws uniformly from the action space.

    Log-likelihoods are those of the draw in spaces with finitely many actions or with bounds; 0 in others.

    Discrete actions whose value or logit is FLOAT_MIN (or minus infinity) are invalid and never drawn.

    Args:
        action_space: The environment's action space.
        **base: See `Exploration`.

    Raises:
        UnsupportedSpaceException: If the space cannot be drawn from.
    """

    part_arguments = ("action_dist", "explore")

    def __init__(self, action_space: Any, **base: Unpack[ExplorationArgs]) -> None:
        super().__init__(action_space, **base)
        self._draw = valid_sampler(action_space, normalized=self.normalizes)
        self._logp = valid_logp(action_space, normalized=self.normalizes)

    def get_exploration_action(
        self, *, action_distribution: Any, timestep: int | None, explore: bool = True
    ) -> tuple[Any, Array]:
        """Returns random actions `[B, …]`; the distribution only says how many, and which are invalid."""
        self.advance(timestep)
        if not explore:
            return greedy(action_distribution)
        if self.framework != "torch" and _within_a_step(action_distribution.inputs):
            from rlframe.exploration.within_steps_tf import drawn_each_time

            draw = partial(self._draw, self.rng)
            return drawn_each_time(draw, self._logp, action_distribution.inputs, self.action_space)
        actions = self._draw(self.rng, action_distribution)
        return actions, self._logp(action_distribution) if self.wants_logp else no_logp(count_rows(action_distribution))


def _within_a_step(inputs: Any) -> bool:
    """Whether inputs are a tensor of a step that TensorFlow traces, which has no values yet."""
    return not isinstance(inputs, np.ndarray) and hasattr(inputs, "graph") and not hasattr(inputs, "numpy")
