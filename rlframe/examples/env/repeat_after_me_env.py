"""Tokens to be repeated some steps later: a test of memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete


class RepeatAfterMeEnv(gymnasium.Env[Any, Any]):
    """Shows a random token at each step; the action should be the token shown `repeat_delay` steps before.

    Reward +1 for the right action, -1 otherwise; in the first `repeat_delay` steps 0 is right. An episode has
    `episode_len` - `repeat_delay` steps, so with the defaults the best return is 100. Without memory it is 0 on
    average.

    Args:
        config: `repeat_delay` (1, at least 1), `episode_len` (101), and `continuous` (False): then tokens and actions
            are points in [-1, 1]², and the reward is minus the sum of the absolute differences.
    """

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        options = dict(config or {})
        self.delay = int(options.get("repeat_delay", 1))
        self.episode_len = int(options.get("episode_len", 101))
        if self.delay < 1:
            raise ValueError(f"repeat_delay: got {self.delay}, wanted 1 step or more")
        self.continuous = bool(options.get("continuous", False))
        space: Any = Box(-1.0, 1.0, (2,), np.float32) if self.continuous else Discrete(2)
        self.observation_space, self.action_space = space, space
        self._history: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode with the tokens 0 before its first."""
        super().reset(seed=seed, options=options)
        zero: Any = np.zeros(2, np.float32) if self.continuous else 0
        self._history = [zero] * self.delay
        return self._token(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Compares the action with the token shown `repeat_delay` steps before, and shows the next one."""
        target = self._history[-(1 + self.delay)]
        if self.continuous:
            reward = -float(np.abs(np.asarray(action) - target).sum())
        else:
            reward = 1.0 if int(action) == target else -1.0
        token = self._token()
        return token, reward, len(self._history) > self.episode_len, False, {}

    def _token(self) -> Any:
        token: Any = (
            self.np_random.uniform(-1, 1, 2).astype(np.float32) if self.continuous else int(self.np_random.integers(2))
        )
        self._history.append(token)
        return token
