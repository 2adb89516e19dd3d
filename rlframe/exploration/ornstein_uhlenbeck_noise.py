"""Deterministic actions with noise that is correlated in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.exploration.exploration import Array, State
from rlframe.exploration.gaussian_noise import GaussianNoise

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rlframe.exploration.exploration import ExplorationArgs


class OrnsteinUhlenbeckNoise(GaussianNoise):
    """Adds noise from an Ornstein-Uhlenbeck process to deterministic actions and clips to the policy's bounds.

        x ← x − theta · x + sigma · N(0, 1)
        action = clip(μ + scale · base_scale · (high − low) · x)

    Every environment slot (row of the batch) has a process of its own, which begins anew at 0 with each episode.
    Dimensions without bounds take 1 for high − low.

    Args:
        action_space: The environment's action space, a Box of floats.
        ou_theta: Share of the noise that is lost in a step.
        ou_sigma: Standard deviation of the step.
        ou_base_scale: Factor beside the scheduled scale.
        random_timesteps: How long actions are uniformly random first, in env steps.
        initial_scale: Scale at the beginning.
        final_scale: Scale at the end.
        scale_timesteps: Length of the straight change between the two, in env steps; it begins behind
            `random_timesteps`.
        scale_schedule: Scale by env step in place of the three above: anything `make_schedule` takes.
        stddev: Not used; there because configs made for `GaussianNoise` carry it.
        **base: See `Exploration`.

    Raises:
        UnsupportedSpaceException: If the action space is not a Box of floats.
        ConfigError: If the schedule is none.

    Source: Lillicrap et al. 2016, "Continuous control with deep reinforcement learning", Algorithm 1.
    """

    def __init__(  # noqa: PLR0913 (the options of RLlib's class)
        self,
        action_space: Any,
        *,
        ou_theta: float = 0.15,
        ou_sigma: float = 0.2,
        ou_base_scale: float = 0.1,
        random_timesteps: int = 1000,
        initial_scale: float = 1.0,
        final_scale: float = 0.02,
        scale_timesteps: int = 10_000,
        scale_schedule: Any = None,
        stddev: float = 0.1,
        **base: Unpack[ExplorationArgs],
    ) -> None:
        super().__init__(
            action_space,
            random_timesteps=random_timesteps,
            stddev=stddev,
            initial_scale=initial_scale,
            final_scale=final_scale,
            scale_timesteps=scale_timesteps,
            scale_schedule=scale_schedule,
            **base,
        )
        self.ou_theta = ou_theta
        self.ou_sigma = ou_sigma
        self.ou_base_scale = ou_base_scale
        bounded = np.isfinite(self._low) & np.isfinite(self._high)
        span = np.where(bounded, self._high, 1.0) - np.where(bounded, self._low, 0.0)
        self._span = span.astype(np.float32)
        self.ou_state: Array = np.zeros((0, *self._low.shape), np.float32)

    def _noise(self, shape: tuple[int, ...]) -> Array:
        rows = shape[0]
        if rows > len(self.ou_state):
            fresh = np.zeros((rows - len(self.ou_state), *shape[1:]), np.float32)
            self.ou_state = np.concatenate([self.ou_state, fresh])
        x = self.ou_state[:rows]
        x += np.float32(self.ou_sigma) * self.rng.standard_normal(shape, np.float32) - np.float32(self.ou_theta) * x
        return np.asarray(x * self._span * np.float32(self.ou_base_scale))

    def on_episode_start(
        self,
        policy: Any,
        *,
        environment: Any = None,  # noqa: ARG002 (the hook's signature)
        episode: Any = None,
        tf_sess: Any = None,  # noqa: ARG002
    ) -> None:
        """Begins the process of the episode's slot anew; of all slots if the episode does not say which."""
        self.policy = policy
        slot = getattr(episode, "env_id", None)
        if isinstance(slot, (int, np.integer)):
            self.ou_state[slot : slot + 1] = 0.0
        else:
            self.ou_state[...] = 0.0

    def get_state(self, sess: Any = None) -> State:
        """Returns the state of `GaussianNoise`, and `ou_state`, float32 `[slots, *shape]`."""
        return {**super().get_state(sess), "ou_state": self.ou_state.copy()}

    def set_state(self, state: State, sess: Any = None) -> None:
        """Takes back what `get_state` returned; entries that are missing stay as they are."""
        super().set_state(state, sess)
        if "ou_state" in state:
            saved = np.array(state["ou_state"], np.float32)
            self.ou_state = saved.reshape(-1, *self._low.shape)
