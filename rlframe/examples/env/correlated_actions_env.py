"""Two actions of which the second should know the first: a test of autoregressive distributions."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, Tuple
from numpy.typing import NDArray


class CorrelatedActionsEnv(gymnasium.Env[Any, Any]):
    """Shows a random bit; pays 5 if the first action is that bit, and 5 more if the second equals the first.

    Twenty steps, so the best return is 200. Independent actions reach it as well here, but only by the first action's
    becoming certain before the second can learn from it.

    Args:
        config: Ignored; environments of RLlib take one.
    """

    def __init__(self, config: Any = None) -> None:
        del config
        self.observation_space = Box(0.0, 1.0, (1,), np.float32)
        self.action_space = Tuple([Discrete(2), Discrete(2)])
        self._steps = 0
        self._last = np.zeros(1, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begins an episode."""
        super().reset(seed=seed, options=options)
        self._steps = 0
        return self._bit(), {}

    def _bit(self) -> NDArray[np.float32]:
        self._last = np.array([self.np_random.integers(2)], np.float32)
        return self._last

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Pays for both actions, and shows the next bit."""
        first, second = (int(part) for part in action)
        self._steps += 1
        reward = 5.0 * (first == int(self._last[0])) + 5.0 * (second == first)
        return self._bit(), reward, self._steps >= 20, False, {}
