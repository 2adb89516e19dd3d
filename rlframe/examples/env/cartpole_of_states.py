"""A pole to be balanced that pays at the end, and can be put into any state: for searches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.spaces import Box, Dict, Discrete


class CartPoleOfStates(gymnasium.Env[Any, Any]):
    """CartPole whose reward is the number of steps, given when the pole falls or the time is over; 0 before.

    Observations are a Dict of `obs` and `action_mask`, which allows both actions.

    Args:
        config: `max_episode_steps` (200, those of CartPole-v0).
    """

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        self._limit = int(dict(config or {}).get("max_episode_steps", 200))
        self._env: Any = CartPoleEnv()
        self._steps = 0
        self.action_space = Discrete(2)
        self.observation_space = Dict(
            {"obs": self._env.observation_space, "action_mask": Box(0.0, 1.0, (2,), np.float32)}
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        super().reset(seed=seed, options=options)
        self._steps = 0
        obs, info = self._env.reset(seed=seed)
        return self._seen(obs), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Pushes the cart. What is over has terminated: nothing of the reward would follow."""
        obs, _, fallen, _, info = self._env.step(int(action))
        self._steps += 1
        over = bool(fallen or self._steps >= self._limit)
        return self._seen(obs), float(self._steps) if over else 0.0, over, False, info

    def get_state(self) -> tuple[Any, int]:
        """Returns where cart and pole are, and the number of steps."""
        return tuple(self._env.state), self._steps

    def set_state(self, state: tuple[Any, int]) -> Any:
        """Puts cart and pole where they were, and returns the observation."""
        self._env.state, self._steps = state
        self._env.steps_beyond_terminated = None
        return self._seen(np.array(self._env.state, np.float32))

    def _seen(self, obs: Any) -> dict[str, Any]:
        return {"obs": np.asarray(obs, np.float32), "action_mask": np.ones(2, np.float32)}
