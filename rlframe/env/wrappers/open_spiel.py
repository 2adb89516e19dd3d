"""Games of OpenSpiel as environments with several agents, as RLlib had them."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from rlframe.env.agent_dicts import ALL
from rlframe.env.multi_agent_env import MultiAgentDict, MultiAgentEnv
from rlframe.utils.errors import EnvError
from rlframe.utils.spaces.old_gym import known_to_both

#: What a move that the rules do not allow costs; one that they allow is drawn in its place.
PENALTY = -0.1


class OpenSpielEnv(MultiAgentEnv):
    """A game in which players, 0, 1, …, move in turns or all at once. Chance moves by itself, by the reset's seed.

    A player who does not move still gets what others' moves bring it. In games of turns a move that the rules do not
    allow costs 0.1 and is replaced by one drawn among those that they do; where all move at once, too.

    Args:
        env: A game, as `pyspiel.load_game("connect_four")` returns.

    Attributes:
        state: The position, OpenSpiel's `State`.
        type: The game's type.
        num_agents: Number of players.
    """

    def __init__(self, env: Any) -> None:
        self.env, self.type, self.num_agents = env, env.get_type(), int(env.num_players())
        self.state: Any = None
        size = int(env.observation_tensor_size())
        self.observation_space = known_to_both(spaces.Box(-np.inf, np.inf, (size,), np.float32))
        self.action_space = known_to_both(spaces.Discrete(int(env.num_distinct_actions())))
        self._rng = np.random.default_rng()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Starts a game; returns the observations of the players who move first, and infos."""
        del options
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self.state = self.env.new_initial_state()
        return self._observe(), {}

    def step(self, action: MultiAgentDict) -> tuple[MultiAgentDict, ...]:
        """Lets the players move whose observations were returned."""
        state, rewards = self.state, dict.fromkeys(range(self.num_agents), 0.0)
        movers = range(self.num_agents) if state.is_simultaneous_node() else [state.current_player()]
        moves = [self._allowed(player, action, rewards) for player in movers]
        before = np.asarray(state.returns())
        if state.is_simultaneous_node():
            state.apply_actions(moves)
        else:
            state.apply_action(moves[0])
        obs = self._observe()
        for player, gained in enumerate(np.asarray(state.returns()) - before):
            rewards[player] += float(gained)
        over = bool(state.is_terminal())
        ends: MultiAgentDict = {**dict.fromkeys(range(self.num_agents), over), ALL: over}
        return obs, rewards, ends, dict.fromkeys(ends, False), {}

    def render(self, mode: str | None = None) -> str:
        """Returns the position as text, and prints it with mode "human"."""
        if mode == "human":
            print(self.state)  # noqa: T201 - what is asked for
        return str(self.state)

    def _allowed(self, player: int, moves: MultiAgentDict, rewards: dict[int, float]) -> int:
        if player not in moves:
            raise EnvError(f"got moves of the players {sorted(moves)}; wanted one of player {player}, whose turn it is")
        legal, move = self.state.legal_actions(player), int(moves[player])
        if move in legal or not legal:
            return move
        rewards[player] += PENALTY
        return int(self._rng.choice(legal))

    def _observe(self) -> MultiAgentDict:
        state = self.state
        while state.is_chance_node():
            outcomes, chances = zip(*state.chance_outcomes(), strict=True)
            state.apply_action(int(self._rng.choice(outcomes, p=chances)))
        if state.is_terminal():
            return {}
        movers = range(self.num_agents) if state.is_simultaneous_node() else [state.current_player()]
        return {player: np.asarray(state.observation_tensor(player), np.float32) for player in movers}
