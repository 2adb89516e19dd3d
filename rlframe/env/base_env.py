"""What callbacks see of a worker's environments."""

from __future__ import annotations

from typing import Any

from rlframe.env.adapt import user_env
from rlframe.env.multi_agent_adapt import MultiAgentAdapter, SingleAgentAsMany

_DUMMY_AGENT_ID = "agent0"
"""What the agent of an environment with one agent is called."""


class BaseEnv:
    """A view of the environments that one worker steps.

    It looks at the worker's own list, so an environment that was replaced after a failure is seen at once.
    """

    def __init__(self, envs: list[Any]) -> None:
        """Keeps a reference to `envs`, one per slot, as the worker steps them."""
        self._envs = envs

    @property
    def num_envs(self) -> int:
        """How many environment slots there are."""
        return len(self._envs)

    @property
    def envs(self) -> list[Any]:
        """The environments as the user's creator returned them, one per slot."""
        return [_as_made(env) for env in self._envs]

    def get_sub_environments(self, as_dict: bool = False) -> Any:
        """Returns the environments as the user's creator returned them: a list, or a dict by slot."""
        return dict(enumerate(self.envs)) if as_dict else self.envs

    def get_unwrapped(self) -> list[Any]:
        """Returns the environments as the user's creator returned them (the older name)."""
        return self.envs

    @property
    def observation_space(self) -> Any:
        """The observation space of the first environment, or None without any."""
        return self._envs[0].observation_space if self._envs else None

    @property
    def action_space(self) -> Any:
        """The action space of the first environment, or None without any."""
        return self._envs[0].action_space if self._envs else None

    def try_render(self, env_id: int | None = None) -> Any:
        """Renders the environment of one slot (the first if None)."""
        return self._envs[env_id or 0].render()

    def stop(self) -> None:
        """Closes all environments."""
        for env in self._envs:
            env.close()


def _as_made(env: Any) -> Any:
    """Returns an environment as the user's creator returned it."""
    return user_env(env.env) if isinstance(env, (MultiAgentAdapter, SingleAgentAsMany)) else user_env(env)
