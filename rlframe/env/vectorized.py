"""Single environments in the contract of a `VectorEnv`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlframe.env.adapt import adapt_env, user_env
from rlframe.env.contracts import check_reset_result, check_step_result
from rlframe.env.vector_env import VectorEnv


class VectorizedGymEnv(VectorEnv):
    """Environments with one agent, stepped one after the other.

    An episode that is truncated, and not terminated, is done with `TimeLimit.truncated` in its info.

    Args:
        make_env: `fn(index)` that makes those that are missing.
        existing_envs: Those that there are.
        num_envs: How many there shall be.
        observation_space: The space of one copy's observations; None takes the first one's.
        action_space: The space of one copy's actions; None takes the first one's.

    Raises:
        ValueError: If some are missing, and nothing makes them.
    """

    def __init__(
        self,
        make_env: Callable[[int], Any] | None = None,
        existing_envs: list[Any] | None = None,
        num_envs: int = 1,
        *,
        observation_space: Any = None,
        action_space: Any = None,
    ) -> None:
        envs = list(existing_envs or ())
        if make_env is None and len(envs) < num_envs:
            raise ValueError(f"Got {len(envs)} environments and no make_env; wanted {num_envs}, or what makes them.")
        while make_env is not None and len(envs) < num_envs:
            envs.append(make_env(len(envs)))
        self._envs = [adapt_env(env) for env in envs]
        first = self._envs[0]
        super().__init__(observation_space or first.observation_space, action_space or first.action_space, num_envs)

    def vector_reset(self) -> list[Any]:
        """Resets all copies and returns their observations."""
        return [self.reset_at(index) for index in range(self.num_envs)]

    def reset_at(self, index: int | None = None) -> Any:
        """Resets the copy at `index` (0 if None) and returns its observation."""
        obs, _ = check_reset_result(self._envs[index or 0].reset(), f"reset() of copy {index or 0}")
        return obs

    def vector_step(self, actions: list[Any]) -> tuple[list[Any], list[float], list[bool], list[dict[str, Any]]]:
        """Steps all copies, and returns observations, rewards, dones and infos, one per copy."""
        rows: tuple[list[Any], list[Any], list[Any], list[Any]] = ([], [], [], [])
        for index, env in enumerate(self._envs[: self.num_envs]):
            step = check_step_result(env.step(actions[index]), f"step() of copy {index}")
            obs, reward, terminated, truncated, info = step
            if truncated and not terminated:
                info = {**info, "TimeLimit.truncated": True}
            for row, value in zip(rows, (obs, reward, terminated or truncated, info), strict=True):
                row.append(value)
        return rows

    def get_sub_environments(self) -> list[Any]:
        """Returns the single environments as they were given."""
        return [user_env(env) for env in self._envs]

    def try_render_at(self, index: int | None = None) -> Any:
        """Shows the copy at `index` (0 if None)."""
        return self._envs[index or 0].render()
