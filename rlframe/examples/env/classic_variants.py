"""Classic control with another physics, other observations or other actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv, PendulumEnv
from gymnasium.envs.toy_text import FrozenLakeEnv
from gymnasium.spaces import Box

from rlframe.env.apis.task_settable_env import TaskSettableEnv


class StatelessPendulum(PendulumEnv):
    """Pendulum without its angular velocity: observations are the cosine and the sine of the angle. No time limit.

    Args:
        config: Not used.
    """

    def __init__(self, config: Any = None) -> None:
        del config
        super().__init__()
        self.observation_space = Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        obs, info = super().reset(**kwargs)
        return obs[:-1], info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Applies a torque."""
        obs, reward, terminated, truncated, info = super().step(action)  # type: ignore[no-untyped-call]  # Gymnasium's
        return obs[:-1], float(reward), terminated, truncated, info


class CartPoleMassEnv(CartPoleEnv, TaskSettableEnv):
    """CartPole whose task is `[mass of the cart, mass of the pole]`: 0.5 to 2 and 0.05 to 0.2."""

    def __init__(self, config: Any = None) -> None:
        del config
        super().__init__()

    def sample_tasks(self, n_tasks: int) -> list[Any]:
        """Returns pairs of masses."""
        return list(self.np_random.uniform([0.5, 0.05], [2.0, 0.2], (n_tasks, 2)))

    def set_task(self, task: Any) -> None:
        """Sets the masses."""
        self.masscart, self.masspole = float(task[0]), float(task[1])
        self.total_mass = self.masspole + self.masscart
        self.polemass_length = self.masspole * self.length

    def get_task(self) -> Any:
        """Returns the masses."""
        return np.array([self.masscart, self.masspole])


class PendulumMassEnv(PendulumEnv, TaskSettableEnv):
    """Pendulum whose task is its mass, 0.5 to 2."""

    def __init__(self, config: Any = None) -> None:
        del config
        super().__init__()

    def sample_tasks(self, n_tasks: int) -> list[Any]:
        """Returns masses."""
        return list(self.np_random.uniform(0.5, 2.0, n_tasks))

    def set_task(self, task: Any) -> None:
        """Sets the mass."""
        self.m = float(task)

    def get_task(self) -> Any:
        """Returns the mass."""
        return self.m


class ActionTransform(gymnasium.ActionWrapper[Any, Any, Any]):
    """Takes actions between other bounds than the environment's, and scales them to these."""

    def __init__(self, env: Any, low: float, high: float) -> None:
        super().__init__(env)
        self._low, self._high = low, high
        self.action_space = Box(low, high, env.action_space.shape, env.action_space.dtype)

    def action(self, action: Any) -> Any:
        """Returns the action between the environment's bounds."""
        inner: Any = self.env.action_space
        share = (np.asarray(action) - self._low) / (self._high - self._low)
        return inner.low + share * (inner.high - inner.low)


def transform_action_space(env_name_or_creator: str | Callable[[Any], Any]) -> Callable[[Mapping[str, Any]], Any]:
    """Returns a creator of environments whose actions lie between `config["low"]` and `config["high"]` (-1 and 1)."""

    def create(config: Mapping[str, Any]) -> ActionTransform:
        made = gymnasium.make(env_name_or_creator) if isinstance(env_name_or_creator, str) else None
        env = env_name_or_creator(config) if callable(env_name_or_creator) else made
        return ActionTransform(env, float(config.get("low", -1.0)), float(config.get("high", 1.0)))

    return create


TransformedActionPendulum = transform_action_space("Pendulum-v1")


def _lake(goal: tuple[int, int], holes: Mapping[int, Sequence[int]]) -> list[str]:
    """Returns a map of 6 x 7 places with the start at the upper left; holes are columns by row."""
    places = [["F"] * 7 for _ in range(6)]
    places[0][0], places[goal[0]][goal[1]] = "S", "G"
    for row, columns in holes.items():
        for column in columns:
            places[row][column] = "H"
    return ["".join(row) for row in places]


class CurriculumCapableEnv(TaskSettableEnv):
    """Frozen lakes without slipping that grow harder with the task: levels 1 to 5.

    Reaching the goal pays 1 on level 1, and ten times as much on each further one.

    Args:
        config: `start_level` (1); `max_timesteps` (18), after which episodes are truncated.
    """

    MAPS = (
        _lake((3, 6), {3: range(2)}),
        _lake((4, 6), {1: [3], 3: range(3)}),
        _lake((5, 6), {1: [2, 3], 3: range(4)}),
        _lake((5, 5), {1: [1, 2, 3], 3: range(5)}),
        _lake((5, 3), {1: [3, 4], 2: [1], 3: range(6), 4: [2, 5]}),
    )

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        options = config or {}
        self.cur_level = int(options.get("start_level", 1))
        self.max_timesteps = int(options.get("max_timesteps", 18))
        self._make_lake()
        self.observation_space, self.action_space = self.frozen_lake.observation_space, self.frozen_lake.action_space
        self._timesteps = 0

    def _make_lake(self) -> None:
        self.frozen_lake = FrozenLakeEnv(desc=list(self.MAPS[self.cur_level - 1]), is_slippery=False)
        self._begun = self.cur_level

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins on the map of the level."""
        if self._begun != self.cur_level:
            self._make_lake()
        self._timesteps = 0
        begun: tuple[Any, dict[str, Any]] = self.frozen_lake.reset(seed=seed, options=options)
        return begun

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Takes a step on the ice."""
        self._timesteps += 1
        obs, reward, terminated, truncated, info = self.frozen_lake.step(action)  # type: ignore[no-untyped-call]
        truncated = bool(truncated or self._timesteps >= self.max_timesteps)
        return obs, float(reward) * 10.0 ** (self._begun - 1), terminated, truncated, info

    def sample_tasks(self, n_tasks: int) -> list[Any]:
        """Returns levels."""
        return [int(level) for level in self.np_random.integers(1, len(self.MAPS) + 1, n_tasks)]

    def get_task(self) -> Any:
        """Returns the level."""
        return self.cur_level

    def set_task(self, task: Any) -> None:
        """Sets the level; the next episode is on its map."""
        self.cur_level = int(task)
