"""Environments that step several copies of themselves at once: the base class, and single ones in its contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from rlframe.env.adapt import adapt_env, user_env
from rlframe.env.contracts import check_reset_result, check_step_result


class VectorEnv:
    """Several copies of one environment, stepped by one call.

    Attributes:
        observation_space: The space of one copy's observations.
        action_space: The space of one copy's actions.
        num_envs: How many copies there are.
    """

    #: Why it is not stepped singly, in a message.
    not_single: ClassVar[str] = "a VectorEnv; give the single environment and set num_envs_per_worker"

    def __init__(self, observation_space: Any, action_space: Any, num_envs: int) -> None:
        """Notes the spaces of one copy and the number of copies."""
        self.observation_space = observation_space
        self.action_space = action_space
        self.num_envs = num_envs

    def vector_reset(self) -> list[Any]:
        """Resets all copies and returns their observations."""
        raise NotImplementedError(f"{type(self).__name__} must define vector_reset().")

    def reset_at(self, index: int | None = None) -> Any:
        """Resets the copy at `index` (0 if None) and returns its observation."""
        raise NotImplementedError(f"{type(self).__name__} must define reset_at().")

    def vector_step(self, actions: list[Any]) -> tuple[list[Any], list[float], list[bool], list[dict[str, Any]]]:
        """Steps all copies, and returns observations, rewards, dones and infos, one per copy."""
        raise NotImplementedError(f"{type(self).__name__} must define vector_step().")

    def get_sub_environments(self) -> list[Any]:
        """Returns the single environments, if there are such."""
        return []

    def get_unwrapped(self) -> list[Any]:
        """Returns the single environments, if there are such (the older name)."""
        return self.get_sub_environments()

    def try_render_at(self, index: int | None = None) -> Any:  # noqa: ARG002 - for those that override it
        """Shows the copy at `index` (0 if None); by default nothing."""
        return None

    @staticmethod
    def vectorize_gym_envs(  # noqa: PLR0913, PLR0917 - RLlib's signature
        make_env: Callable[[int], Any] | None = None,
        existing_envs: list[Any] | None = None,
        num_envs: int = 1,
        action_space: Any = None,
        observation_space: Any = None,
        env_config: Any = None,
        policy_config: Any = None,
    ) -> VectorEnv:
        """Returns single environments, each with one agent, as a `VectorEnv` that steps them one after the other.

        Args:
            make_env: `fn(index)` that makes those that are missing.
            existing_envs: Those that there are, of Gymnasium's contract or the older one.
            num_envs: How many there shall be.
            action_space: The space of one copy's actions; None takes the first one's.
            observation_space: The space of one copy's observations; None takes the first one's.
            env_config: Not used.
            policy_config: Not used.
        """
        del env_config, policy_config
        return VectorizedGymEnv(
            make_env, existing_envs, num_envs, observation_space=observation_space, action_space=action_space
        )

    def wrap(self, *args: Any, **kwargs: Any) -> VectorEnv:
        """Does what `vectorize_gym_envs` does (the older name)."""
        return self.vectorize_gym_envs(*args, **kwargs)


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
