"""Actions in proportion to the exponential of their values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from rlframe.exploration.exploration import Array, StochasticSampling, greedy
from rlframe.utils.errors import ConfigError, UnsupportedSpaceException
from rlframe.utils.numpy import convert_to_numpy, softmax

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rlframe.exploration.exploration import ExplorationArgs

# Far below where exp() is 0, far above where dividing by a small temperature overflows.
_LOWEST = -1e30


class SoftQ(StochasticSampling):
    """Samples actions with probabilities softmax(Q / temperature).

    Args:
        action_space: The environment's action space, a Discrete one.
        temperature: Above 0; small is greedy, large is uniform.
        random_timesteps: How long actions are uniformly random first, in env steps.
        **base: See `Exploration`.

    Raises:
        UnsupportedSpaceException: If the action space is not Discrete.
        ConfigError: If the temperature is not above 0.
    """

    def __init__(
        self,
        action_space: Any,
        *,
        temperature: float = 1.0,
        random_timesteps: int = 0,
        **base: Unpack[ExplorationArgs],
    ) -> None:
        if not isinstance(action_space, spaces.Discrete):
            raise UnsupportedSpaceException(
                f"SoftQ got the action space {action_space}; wanted a Discrete one. Use StochasticSampling for others."
            )
        if not temperature > 0:
            raise ConfigError(f"SoftQ: temperature is {temperature!r}; wanted above 0 (or explore=False to be greedy).")
        super().__init__(action_space, random_timesteps=random_timesteps, **base)
        self.temperature = temperature

    def get_exploration_action(
        self, *, action_distribution: Any, timestep: int | None = None, explore: bool = True
    ) -> tuple[Any, Array]:
        """Returns actions, integer `[B]`, and their log-likelihoods under the tempered softmax, float32 `[B]`."""
        step = self.advance(timestep)
        if not explore:
            return greedy(action_distribution)
        if self._random is not None and step < self.random_timesteps:
            return self._uniform(action_distribution)
        values = convert_to_numpy(action_distribution.inputs)
        shifted = np.maximum(values - values.max(axis=1, keepdims=True), _LOWEST) / self.temperature
        # argmax(logits − log E) with E standard exponential is a draw from softmax(logits).
        actions = (shifted - np.log(self.rng.standard_exponential(shifted.shape))).argmax(axis=1)
        logp = shifted[np.arange(len(actions)), actions] - np.log(np.exp(shifted).sum(axis=1))
        return actions, logp.astype(np.float32)

    def action_probabilities(self, action_distribution: Any, timestep: int | None = None) -> Array | None:
        """Returns softmax(Q / temperature), float64 `[B, A]`; None while actions are uniformly random."""
        if self.is_random_at(timestep):
            return None
        values = np.asarray(convert_to_numpy(action_distribution.inputs), np.float64)
        return softmax(np.maximum(values - values.max(axis=1, keepdims=True), _LOWEST) / self.temperature)
