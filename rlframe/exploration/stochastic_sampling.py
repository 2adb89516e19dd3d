"""Actions as the policy's distribution gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from rlframe.exploration.exploration import Array, Exploration, drawn, greedy
from rlframe.exploration.random import valid_logp, valid_sampler
from rlframe.utils.numpy import convert_to_numpy, softmax

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rlframe.exploration.exploration import ExplorationArgs


class StochasticSampling(Exploration):
    """Samples from the policy's distribution, after some uniformly random steps if wanted.

    Args:
        action_space: The environment's action space.
        random_timesteps: How long actions are uniformly random first, in env steps; with `Random`'s log-likelihoods.
            Invalid Discrete actions, with a logit of FLOAT_MIN, are never drawn.
        **base: See `Exploration`.

    Raises:
        UnsupportedSpaceException: If random steps are wanted and the space cannot be drawn from.
    """

    def __init__(self, action_space: Any, *, random_timesteps: int = 0, **base: Unpack[ExplorationArgs]) -> None:
        super().__init__(action_space, **base)
        self.random_timesteps = random_timesteps
        self._random = valid_sampler(action_space, normalized=self.normalizes) if random_timesteps else None
        self._random_logp = valid_logp(action_space, normalized=self.normalizes)

    def get_exploration_action(
        self, *, action_distribution: Any, timestep: int | None = None, explore: bool = True
    ) -> tuple[Any, Array]:
        """Returns sampled actions `[B, …]` and their log-likelihoods `[B]`; deterministic ones without `explore`."""
        step = self.advance(timestep)
        if not explore:
            actions, logp = greedy(action_distribution)
            return actions, _shaped(logp, action_distribution)
        if self._random is not None and step < self.random_timesteps:
            return self._uniform(action_distribution)
        return drawn(action_distribution)

    def _uniform(self, action_distribution: Any) -> tuple[Any, Array]:
        """Returns uniformly random actions `[B, …]` and their log-likelihoods, float32 `[B]`."""
        assert self._random is not None  # asked for at random steps alone
        return self._random(self.rng, action_distribution), self._random_logp(action_distribution)

    def is_random_at(self, timestep: int | None) -> bool:
        """Returns whether actions are uniformly random at a global time step; None takes that of the last actions."""
        return (self.last_timestep if timestep is None else timestep) < self.random_timesteps

    def action_probabilities(self, action_distribution: Any, timestep: int | None = None) -> Array | None:
        """Returns softmax of the logits, float64 `[B, A]`; None in other spaces, and while actions are uniform."""
        if self.is_random_at(timestep) or not isinstance(self.action_space, spaces.Discrete):
            return None
        return softmax(np.asarray(convert_to_numpy(action_distribution.inputs), np.float64))


def _shaped(logp: Array, distribution: Any) -> Array:
    """Returns zeros `[B]`, in the shape that a user's distribution gives log-likelihoods: `[B, N]` for N agents."""
    ours = type(distribution).__module__.startswith("rlframe.")
    given = None if ours else getattr(distribution, "sampled_action_logp", None)
    return logp if given is None else np.zeros(np.shape(convert_to_numpy(given())), np.float32)
