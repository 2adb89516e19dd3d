"""Actions as the policy's distribution gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from rlframe.exploration.exploration import Array, Exploration, count_rows, drawn, greedy, no_logp
from rlframe.exploration.random import valid_sampler
from rlframe.utils.numpy import convert_to_numpy, softmax

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rlframe.exploration.exploration import ExplorationArgs


class StochasticSampling(Exploration):
    """Samples from the policy's distribution, after some uniformly random steps if wanted.

    Args:
        action_space: The environment's action space.
        random_timesteps: How long actions are uniformly random first, with log-likelihood 0; in env steps. Invalid
            Discrete actions, with a logit of FLOAT_MIN, are never drawn.
        **base: See `Exploration`.

    Raises:
        UnsupportedSpaceException: If random steps are wanted and the space cannot be drawn from.
    """

    def __init__(self, action_space: Any, *, random_timesteps: int = 0, **base: Unpack[ExplorationArgs]) -> None:
        super().__init__(action_space, **base)
        self.random_timesteps = random_timesteps
        self._random = valid_sampler(action_space, normalized=self.normalizes) if random_timesteps else None

    def get_exploration_action(
        self, *, action_distribution: Any, timestep: int | None, explore: bool = True
    ) -> tuple[Any, Array]:
        """Returns sampled actions `[B, …]` and their log-likelihoods `[B]`; deterministic ones without `explore`."""
        step = self.advance(timestep)
        if not explore:
            return greedy(action_distribution)
        if self._random is not None and step < self.random_timesteps:
            return self._random(self.rng, action_distribution), no_logp(count_rows(action_distribution))
        return drawn(action_distribution)

    def action_probabilities(self, action_distribution: Any) -> Array | None:
        """Returns softmax of the logits, float64 `[B, A]`; None in other spaces, and while actions are uniform."""
        if self.last_timestep < self.random_timesteps or not isinstance(self.action_space, spaces.Discrete):
            return None
        return softmax(np.asarray(convert_to_numpy(action_distribution.inputs), np.float64))
