"""A game of two steps whose best outcome needs two agents to trust each other."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from rlframe.env.multi_agent_env import MultiAgentDict, MultiAgentEnv
from rlframe.utils.spaces.simplex import Simplex

#: Payoff of the second game that agent 0 may choose, by both actions.
_PAYOFF = ((0.0, 1.0), (1.0, 8.0))


class TwoStepGame(MultiAgentEnv):
    """Agent 0 chooses a game, then both choose an action. One game pays 7, the other up to 8, and 0 for a mistake.

    Both get half of what is paid. An agent sees the state (choosing, safe game, other game) one-hot, and who it is.

    Args:
        config: `{"actions_are_logits": True}` has actions as vectors of two shares, of which the larger counts: that is
            how MADDPG acted in RLlib.

    Source: Rashid et al. 2018, "QMIX", section 5.
    """

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (5,), np.float32)
    action_space: Any = gymnasium.spaces.Discrete(2)

    def __init__(self, config: Any = None) -> None:
        self.possible_agents = [0, 1]
        if (config or {}).get("actions_are_logits"):
            self.action_space = Simplex((2,))
        self._state = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begins with the choice of the game."""
        del seed, options
        self._state = 0
        return self._obs(), {}

    def step(self, action_dict: MultiAgentDict) -> tuple[MultiAgentDict, ...]:
        """Takes the choice of the game, or of both actions."""
        over, paid = self._state > 0, 0.0
        first, second = (int(np.argmax(made) if np.ndim(made) else made) for made in (action_dict[0], action_dict[1]))
        if over:
            paid = 7.0 if self._state == 1 else _PAYOFF[first][second]
        else:
            self._state = 1 + first
        rewards = dict.fromkeys(self.possible_agents, paid / 2)
        return self._obs(), rewards, {"__all__": over}, {"__all__": False}, {}

    def _obs(self) -> MultiAgentDict:
        both = np.eye(5, dtype=np.float32)
        return {agent: both[self._state] + both[3 + agent] for agent in self.possible_agents}
