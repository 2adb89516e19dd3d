"""Two actions of which the second should know the first: a test of autoregressive distributions."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.spaces import Discrete, Tuple


class CorrelatedActionsEnv(gymnasium.Env[Any, Any]):
    """Shows a random bit; pays 5 if the first action is that bit, and 5 more if the second equals the first.

    Episodes have 21 steps, so the best return is 210. Independent actions reach it as well here, but only by the first
    action's becoming certain before the second can learn from it.

    Args:
        config: Ignored; environments of RLlib take one.
    """

    def __init__(self, config: Any = None) -> None:
        del config
        self.observation_space = Discrete(2)
        self.action_space = Tuple([Discrete(2), Discrete(2)])
        self._steps = self.last_observation = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Begins an episode."""
        super().reset(seed=seed, options=options)
        self._steps = 0
        return self._bit(), {}

    def _bit(self) -> int:
        self.last_observation = int(self.np_random.integers(2))
        return self.last_observation

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Pays for both actions, and shows the next bit."""
        first, second = (int(part) for part in action)
        self._steps += 1
        reward = 5.0 * (first == self.last_observation) + 5.0 * (second == first)
        return self._bit(), reward, self._steps > 20, False, {}
