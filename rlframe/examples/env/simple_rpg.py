"""Observations that are lists of things which have lists of things."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.spaces import Box, Dict, Discrete

from rlframe.utils.spaces.repeated import Repeated

MAX_PLAYERS = 4
MAX_ITEMS = 7
MAX_EFFECTS = 2


class SimpleRPG(gymnasium.Env[Any, Any]):
    """Players in a role-playing game: each has a location, a status, items (numbers), and effects (vectors).

    Observations are random, an episode is one step, which pays 1: it shows a space, and how models read it; there is
    nothing to learn.

    Args:
        config: Not used.
    """

    def __init__(self, config: Any = None) -> None:
        del config
        self.action_space = Discrete(4)
        self.item_space = Discrete(5)
        self.effect_space = Box(9000.0, 9999.0, (4,))
        self.player_space = Dict(
            {
                "location": Box(-100.0, 100.0, (2,)),
                "status": Box(-1.0, 1.0, (10,)),
                "items": Repeated(self.item_space, max_len=MAX_ITEMS),
                "effects": Repeated(self.effect_space, max_len=MAX_EFFECTS),
            }
        )
        self.observation_space = Repeated(self.player_space, max_len=MAX_PLAYERS)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        super().reset(seed=seed, options=options)
        if seed is not None:
            self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Ends the episode."""
        del action
        return self.observation_space.sample(), 1.0, True, False, {}
