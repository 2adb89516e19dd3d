"""What callbacks see of a worker's environments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlframe.env.adapt import user_env
from rlframe.env.multi_agent_adapt import MultiAgentAdapter, SingleAgentAsMany
from rlframe.utils.errors import EnvError

_DUMMY_AGENT_ID = "agent0"
"""What the agent of an environment with one agent is called."""


ASYNC_RESET_RETURN = "async_reset_return"
"""What `try_reset` returns where the observation comes with a later `poll`."""
_NOT_POLLED = (
    "The worker steps these environments itself; a loop of your own polls BaseEnv.to_base_env(env), or a subclass of "
    "BaseEnv that defines poll(), send_actions() and try_reset()"
)


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

    @staticmethod
    def to_base_env(
        env: Any,
        make_env: Callable[[int], Any] | None = None,
        num_envs: int = 1,
        remote_envs: bool = False,
        remote_env_batch_wait_ms: int = 0,
        policy_config: Any = None,
    ) -> BaseEnv:
        """Returns environments that a program's own loop polls and sends actions to.

        Args:
            env: One environment of any kind but an `ExternalEnv`; a `BaseEnv` is returned as it is.
            make_env: `fn(index)` that makes the others.
            num_envs: How many there shall be.
            remote_envs: Has to be False: workers are what steps environments in other processes.
            remote_env_batch_wait_ms: Not used.
            policy_config: Not used.

        Raises:
            EnvError: If there cannot be such.
        """
        from rlframe.env.polled_envs import to_base_env

        del remote_env_batch_wait_ms, policy_config
        if remote_envs:
            raise EnvError("remote_envs is True; set num_workers to step environments in several processes")
        return to_base_env(env, make_env, num_envs)

    def poll(self) -> Any:
        """Returns observations, rewards, dones, infos and off-policy actions, each by environment and agent.

        Raises:
            NotImplementedError: If this is a worker's view of what it steps itself.
        """
        raise NotImplementedError(_NOT_POLLED)

    def send_actions(self, action_dict: Any) -> None:
        """Takes actions by environment and agent.

        Raises:
            NotImplementedError: If this is a worker's view of what it steps itself.
        """
        raise NotImplementedError(_NOT_POLLED)

    def try_reset(self, env_id: int | None = None) -> Any:
        """Resets one environment, and returns its observations by agent.

        Raises:
            NotImplementedError: If this is a worker's view of what it steps itself.
        """
        raise NotImplementedError(_NOT_POLLED)

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
