"""Environments whose observations, rewards and ends are drawn at random: what costs time is then the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

from rlframe.env.multi_agent_env import make_multi_agent
from rlframe.utils.spaces.old_gym import known_to_both


class RandomEnv(gymnasium.Env[Any, Any]):
    """Draws everything from spaces.

    Args:
        config: `observation_space` and `action_space` (Discrete(2)), `reward_space` (Box from -1 to 1), each of
            Gymnasium or the old gym; `p_done`, the chance that a step is the last (0.1), `max_episode_len` (None), and
            `check_action_bounds` (False): an action outside of its space is then a ValueError.
    """

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        options = dict(config or {})
        self.observation_space = known_to_both(options.get("observation_space", Discrete(2)))
        self.action_space = known_to_both(options.get("action_space", Discrete(2)))
        self.reward_space = known_to_both(options.get("reward_space", Box(-1.0, 1.0, (), np.float32)))
        self.p_done = float(options.get("p_done", 0.1))
        self.max_episode_len = options.get("max_episode_len")
        self.check_action_bounds = bool(options.get("check_action_bounds", False))
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        super().reset(seed=seed, options=options)
        if seed is not None:
            self.observation_space.seed(seed)
            self.reward_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Draws the next observation, the reward, and whether the episode ends."""
        if self.check_action_bounds and not self.action_space.contains(action):
            raise ValueError(f"got the action {action!r}, wanted one of {self.action_space}")
        self.steps += 1
        ended = bool(self.np_random.random() < self.p_done)
        truncated = self.max_episode_len is not None and self.steps >= self.max_episode_len
        reward = float(np.asarray(self.reward_space.sample()))
        return self.observation_space.sample(), reward, ended, truncated and not ended, {}


RandomMultiAgentEnv = make_multi_agent(lambda config: RandomEnv(config))


class RandomLargeObsSpaceEnv(RandomEnv):
    """A RandomEnv with 5,000 numbers in each observation."""

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        super().__init__({"observation_space": Box(-1.0, 1.0, (5000,)), **(config or {})})


class RandomLargeObsSpaceEnvContActions(RandomEnv):
    """A RandomEnv with 5,000 numbers in each observation, and 5 in an action."""

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        spaces = {"observation_space": Box(-1.0, 1.0, (5000,)), "action_space": Box(-1.0, 1.0, (5,))}
        super().__init__({**spaces, **(config or {})})


class ActionMaskEnv(RandomEnv):
    """A RandomEnv that says which actions are valid now: observations are `{"action_mask", "observations"}`.

    An invalid action is a ValueError.
    """

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        super().__init__({"action_space": Discrete(100), "observation_space": Box(-1.0, 1.0, (5,)), **(config or {})})
        actions: Any = self.action_space
        mask = Box(0.0, 1.0, (int(actions.n),), np.float32)
        self.observation_space = Dict({"action_mask": mask, "observations": self.observation_space})
        self.valid_actions = np.ones(int(actions.n), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        obs, info = super().reset(seed=seed, options=options)
        return self._masked(obs), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Takes one of the valid actions."""
        if not self.valid_actions[int(action)]:
            raise ValueError(f"got the action {action}, which the mask of the last observation forbids")
        obs, *rest = super().step(action)
        return (self._masked(obs), *rest)  # type: ignore[return-value]  # mypy knows no lengths of lists

    def _masked(self, obs: dict[str, Any]) -> dict[str, Any]:
        """Draws which actions are valid: at least one is."""
        self.valid_actions = self.np_random.integers(0, 2, len(self.valid_actions)).astype(np.float32)
        self.valid_actions[self.np_random.integers(len(self.valid_actions))] = 1.0
        return {**obs, "action_mask": self.valid_actions}
