"""Deterministic actions with independent noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from rlframe.exploration.exploration import Array, Exploration, State, count_rows, greedy, no_logp
from rlframe.exploration.uniform import policy_bounds, uniform_sampler
from rlframe.utils.errors import UnsupportedSpaceException
from rlframe.utils.schedules import PiecewiseSchedule, make_schedule

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rlframe.exploration.exploration import ExplorationArgs


class GaussianNoise(Exploration):
    """Adds scale · N(0, stddev) to deterministic actions and clips to the policy's bounds.

    Noise is in units of the policy's actions: with `normalize_actions` the whole range is 2 wide.

    Args:
        action_space: The environment's action space, a Box of floats.
        random_timesteps: How long actions are uniformly random first, in env steps.
        stddev: Standard deviation at scale 1.
        initial_scale: Scale at the beginning.
        final_scale: Scale at the end.
        scale_timesteps: Length of the straight change between the two, in env steps; it begins behind
            `random_timesteps`.
        scale_schedule: Scale by env step in place of the three above: anything `make_schedule` takes.
        **base: See `Exploration`.

    Raises:
        UnsupportedSpaceException: If the action space is not a Box of floats.
        ConfigError: If the schedule is none.
    """

    def __init__(  # noqa: PLR0913 (the options of RLlib's class)
        self,
        action_space: Any,
        *,
        random_timesteps: int = 1000,
        stddev: float = 0.1,
        initial_scale: float = 1.0,
        final_scale: float = 0.02,
        scale_timesteps: int = 10_000,
        scale_schedule: Any = None,
        **base: Unpack[ExplorationArgs],
    ) -> None:
        if not isinstance(action_space, spaces.Box) or not np.issubdtype(action_space.dtype, np.floating):
            raise UnsupportedSpaceException(
                f"{type(self).__name__} got the action space {action_space}; wanted a Box of floats. "
                f"Use EpsilonGreedy or StochasticSampling for others."
            )
        super().__init__(action_space, **base)
        self.random_timesteps = random_timesteps
        self.stddev = stddev
        changes = (
            (0, initial_scale),
            (random_timesteps, initial_scale),
            (random_timesteps + scale_timesteps, final_scale),
        )
        self.scale_schedule = make_schedule(scale_schedule) or PiecewiseSchedule(changes, outside_value=final_scale)
        self._uniform = uniform_sampler(action_space, normalized=self.normalizes)
        self._low, self._high = policy_bounds(action_space, normalized=self.normalizes)

    def get_exploration_action(
        self, *, action_distribution: Any, timestep: int | None, explore: bool = True
    ) -> tuple[Any, Array]:
        """Returns actions, float `[B, *shape]`, and zeros `[B]`."""
        step = self.advance(timestep)
        if not explore:
            return greedy(action_distribution)
        if step < self.random_timesteps:
            rows = count_rows(action_distribution)
            return self._uniform(self.rng, rows), no_logp(rows)
        actions, logp = greedy(action_distribution)
        noise = self._noise(actions.shape) * float(self.scale_schedule(step))
        noisy = np.minimum(np.maximum(actions + noise, self._low), self._high)
        return noisy.astype(actions.dtype, copy=False), logp

    def _noise(self, shape: tuple[int, ...]) -> Array:
        """Returns noise at scale 1, float32 `[B, *shape]`."""
        return self.rng.standard_normal(shape, np.float32) * np.float32(self.stddev)

    @property
    def scale(self) -> float:
        """Scale at the last time step."""
        return float(self.scale_schedule(self.last_timestep))

    def get_state(self, sess: Any = None) -> State:
        """Returns the state of `Exploration`, and `cur_scale`."""
        return {**super().get_state(sess), "cur_scale": self.scale}
