"""CartPole without velocities: a test of memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.spaces import Box
from numpy.typing import NDArray


class StatelessCartPole(CartPoleEnv):
    """CartPole whose observation is the cart's position and the pole's angle only, `[x, θ]`.

    It has no time limit: set `horizon` in the config where one is wanted.

    Args:
        config: Ignored; environments of RLlib take one.
    """

    def __init__(self, config: Any = None) -> None:
        del config
        super().__init__()
        high = np.array([self.x_threshold * 2, self.theta_threshold_radians * 2], np.float32)
        self.observation_space = Box(-high, high, dtype=np.float32)

    def reset(self, **kwargs: Any) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begins an episode."""
        obs, info = super().reset(**kwargs)
        return obs[[0, 2]], info

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Pushes the cart to the left (0) or to the right (1)."""
        obs, reward, terminated, truncated, info = super().step(action)  # type: ignore[no-untyped-call]  # Gymnasium's
        return obs[[0, 2]], float(reward), terminated, truncated, info
