"""A maze in which one can only go where the wind blows, alone or with an agent that sets goals for another."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, Tuple
from numpy.typing import NDArray

from rlframe.env.multi_agent_env import MultiAgentEnv
from rlframe.utils.spaces.old_gym import known_to_both

#: From S to F.
MAP_DATA = """
#########
#S      #
####### #
      # #
      # #
####### #
#F      #
#########"""
#: By direction of the wind: up, right, down, left.
_MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
_TIME_LIMIT = 200
_STEPS_OF_GOAL = 25

Place = tuple[int, int]


class WindyMazeEnv(gymnasium.Env[Any, Any]):
    """Observations are the place, float `[2]`, and the wind, 0 to 3; 1 goes with the wind, 0 stays. The goal pays 100.

    Args:
        env_config: Not used.
    """

    def __init__(self, env_config: Any = None) -> None:
        del env_config
        self.map = [line for line in MAP_DATA.split("\n") if line]
        self.start_pos, self.end_pos = self._find("S"), self._find("F")
        self.observation_space = known_to_both(Tuple([Box(0.0, 100.0, (2,), np.float32), Discrete(4)]))
        self.action_space = known_to_both(Discrete(2))
        self.pos, self.wind_direction, self.num_steps = self.start_pos, 0, 0

    def _find(self, letter: str) -> Place:
        return next((x, line.index(letter)) for x, line in enumerate(self.map) if letter in line)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins at S."""
        super().reset(seed=seed, options=options)
        self.pos, self.num_steps = self.start_pos, 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Goes with the wind, or stays."""
        if action == 1:
            self.pos = self.behind(self.pos, self.wind_direction)
        self.num_steps += 1
        at_goal = self.pos == self.end_pos
        return self._observe(), 100.0 * at_goal, at_goal, self.num_steps >= _TIME_LIMIT and not at_goal, {}

    def behind(self, pos: Place, direction: int) -> Place:
        """Returns where one comes to from a place in a direction; the place itself where there is a wall."""
        x, y = pos[0] + _MOVES[direction][0], pos[1] + _MOVES[direction][1]
        inside = 0 <= x < len(self.map) and 0 <= y < len(self.map[0])
        return (x, y) if inside and self.map[x][y] != "#" else pos

    def _observe(self) -> tuple[NDArray[np.float32], int]:
        self.wind_direction = int(self.np_random.integers(4))
        return np.array(self.pos, np.float32), self.wind_direction


class HierarchicalWindyMazeEnv(MultiAgentEnv):
    """The maze with two levels: `high_level_agent` names a direction, and a `low_level_N` has 25 steps to go there.

    The high level sees what the flat maze shows and acts in Discrete(4); the low level sees that and the direction.
    Going the right way pays the low level 1, another way -1; the goal pays the high level 100.

    Args:
        env_config: Not used.
    """

    def __init__(self, env_config: Any = None) -> None:
        self.flat_env = WindyMazeEnv(env_config)
        flat = self.flat_env.observation_space
        self.observation_spaces = {"high_level_agent": flat, "low_level": Tuple([flat, Discrete(4)])}
        self.action_spaces = {"high_level_agent": Discrete(4), "low_level": self.flat_env.action_space}
        self.num_high_level_steps = 0
        self.low_level_agent_id = "low_level_0"

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begins with the high level's turn."""
        self.cur_obs, _ = self.flat_env.reset(seed=seed, options=options)
        self.current_goal, self.steps_remaining_at_level = 0, 0
        self.num_high_level_steps = 0
        self.low_level_agent_id = "low_level_0"
        return {"high_level_agent": self.cur_obs}, {}

    def step(self, action_dict: dict[Any, Any]) -> tuple[dict[Any, Any], ...]:
        """Takes the action of whose turn it is."""
        if "high_level_agent" in action_dict:
            return self._set_goal(int(action_dict["high_level_agent"]))
        return self._go(next(iter(action_dict.values())))

    def _set_goal(self, direction: int) -> tuple[dict[Any, Any], ...]:
        self.current_goal, self.steps_remaining_at_level = direction, _STEPS_OF_GOAL
        self.num_high_level_steps += 1
        self.low_level_agent_id = f"low_level_{self.num_high_level_steps}"
        low = self.low_level_agent_id
        return {low: (self.cur_obs, direction)}, {low: 0.0}, {"__all__": False}, {"__all__": False}, {}

    def _go(self, action: Any) -> tuple[dict[Any, Any], ...]:
        low, before = self.low_level_agent_id, self.flat_env.pos
        wanted = self.flat_env.behind(before, self.current_goal)
        self.steps_remaining_at_level -= 1
        self.cur_obs, paid, terminated, truncated, _ = self.flat_env.step(action)
        after = self.flat_env.pos
        obs: dict[Any, Any] = {low: (self.cur_obs, self.current_goal)}
        rewards = {low: 0.0 if after == before else (1.0 if after == wanted else -1.0)}
        ends: dict[Any, bool] = {"__all__": terminated}
        over = terminated or truncated
        if over or self.steps_remaining_at_level == 0:
            obs["high_level_agent"], rewards["high_level_agent"] = self.cur_obs, float(paid)
            if not over:
                ends[low] = True
        return obs, rewards, ends, {"__all__": truncated}, {}
