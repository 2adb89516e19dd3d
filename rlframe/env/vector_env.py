"""The base class of environments that step several copies of themselves at once."""

from __future__ import annotations

from typing import Any


class VectorEnv:
    """Several copies of one environment, stepped by one call.

    Attributes:
        observation_space: The space of one copy's observations.
        action_space: The space of one copy's actions.
        num_envs: How many copies there are.
    """

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
