"""A game of two steps whose best outcome needs two agents to trust each other."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from rlframe.env.multi_agent_env import ENV_STATE, GroupAgentsWrapper, MultiAgentDict, MultiAgentEnv
from rlframe.utils.spaces.old_gym import known_to_both
from rlframe.utils.spaces.simplex import Simplex

#: Payoff of the second game that agent 0 may choose, by both actions.
_PAYOFF = ((0.0, 1.0), (1.0, 8.0))
_STATES = 3


class TwoStepGame(MultiAgentEnv):
    """Agent 0 chooses a game, then both choose an action. One game pays 7, the other up to 8, and 0 for a mistake.

    Both get half of what is paid. An agent sees the state (choosing, safe game, other game), and who it is, as one
    number: the state, and 3 more for agent 1.

    Args:
        env_config: Other forms. `one_hot_state_encoding` gives the state one-hot, and behind it the agent: 1 or 2;
            with `separate_state_space`, too, the state stands beside that, for QMIX's mixer. `actions_are_logits` has
            actions as vectors of two shares, of which the larger counts: that is how MADDPG acted in RLlib.

    Source: Rashid et al. 2018, "QMIX", section 5.
    """

    action_space: Any = known_to_both(spaces.Discrete(2))

    def __init__(self, env_config: Any = None) -> None:
        config = env_config or {}
        self.possible_agents = [0, 1]
        if config.get("actions_are_logits"):
            self.action_space = Simplex((2,))
        self._one_hot = bool(config.get("one_hot_state_encoding"))
        self._with_state = self._one_hot and bool(config.get("separate_state_space"))
        self.observation_space: Any = spaces.Discrete(2 * _STATES)
        if self._one_hot:
            self.observation_space = spaces.MultiDiscrete([2, 2, 2, 3])
        if self._with_state:
            state = spaces.MultiDiscrete([2, 2, 2])
            self.observation_space = spaces.Dict({"obs": self.observation_space, ENV_STATE: state})
        self._state = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begins with the choice of the game."""
        del seed, options
        self._state = 0
        return self._obs()

    def step(self, action_dict: MultiAgentDict) -> tuple[MultiAgentDict, ...]:
        """Takes the choice of the game, or of both actions."""
        over, paid = self._state > 0, 0.0
        first, second = (int(np.argmax(made) if np.ndim(made) else made) for made in (action_dict[0], action_dict[1]))
        if over:
            paid = 7.0 if self._state == 1 else _PAYOFF[first][second]
        else:
            self._state = 1 + first
        rewards = dict.fromkeys(self.possible_agents, paid / 2)
        return self._obs(), rewards, {"__all__": over}, {}

    def seed(self, seed: int | None = None) -> None:
        """Does nothing: nothing is drawn in this game."""

    def agent_1_obs(self) -> Any:
        """Returns what agent 0 sees, without what stands beside it for a mixer."""
        return self._seen_by(0)

    def agent_2_obs(self) -> Any:
        """Returns what agent 1 sees."""
        return self._seen_by(1)

    def _obs(self) -> MultiAgentDict:
        seen = dict(zip(self.possible_agents, (self.agent_1_obs(), self.agent_2_obs()), strict=True))
        if self._with_state:
            return {agent: {"obs": obs, ENV_STATE: self._one_hot_state()} for agent, obs in seen.items()}
        return seen

    def _seen_by(self, agent: int) -> Any:
        return np.append(self._one_hot_state(), 1 + agent) if self._one_hot else self._state + _STATES * agent

    def _one_hot_state(self) -> Any:
        return np.eye(_STATES, dtype=np.int64)[self._state]


class TwoStepGameWithGroupedAgents(GroupAgentsWrapper):
    """The game with both agents in the group `agents`, as QMIX wants it.

    Args:
        config: Of `TwoStepGame`; below a key `env_config` as RLlib's files have it, too.
    """

    def __init__(self, config: Any = None) -> None:
        given = dict(config or {})
        super().__init__(TwoStepGame(given.get("env_config", given)), {"agents": [0, 1]})
