"""What callbacks see of a worker's environments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlframe.env.adapt import user_env
from rlframe.env.multi_agent_adapt import MultiAgentAdapter, SingleAgentAsMany
from rlframe.env.polled_simulator import ASYNC_RESET_RETURN as ASYNC_RESET_RETURN
from rlframe.env.polled_simulator import PolledSimulator
from rlframe.env.vector_places import VectorPlace

_DUMMY_AGENT_ID = "agent0"
"""What the agent of an environment with one agent is called."""


_NOT_POLLED = (
    "The worker steps these environments itself; a loop of your own polls BaseEnv.to_base_env(env), or a subclass of "
    "BaseEnv that defines poll(), send_actions() and try_reset()"
)


class BaseEnv:
    """A view of the environments that one worker steps; or the base of environments of one's own that are polled.

    As a view it looks at the worker's own list, so an environment that was replaced after a failure is seen at once.
    A subclass defines `poll()`, `send_actions()` and `try_reset()`, and trainers take it as environment.
    """

    _envs: Any = ()
    _own_spaces: dict[str, Any] | None = None

    def __init__(self, envs: Any = ()) -> None:
        """Keeps a reference to `envs`, one per slot, as the worker steps them."""
        self._envs = envs

    @property
    def num_envs(self) -> int:
        """How many environment slots there are."""
        return len(self._envs)

    @property
    def envs(self) -> list[Any]:
        """The environments as the user's creator returned them, one per slot; of a `VectorEnv` those in it."""
        return [made for env in self._envs for made in _as_made(env)]

    def get_sub_environments(self, as_dict: bool = False) -> Any:
        """Returns the environments as the user's creator returned them: a list, or a dict by slot."""
        return dict(enumerate(self.envs)) if as_dict else self.envs

    def get_unwrapped(self) -> list[Any]:
        """Returns the environments as the user's creator returned them (the older name)."""
        return self.envs

    @property
    def observation_space(self) -> Any:
        """The observation space of the first environment, or None without any; subclasses may set it."""
        return self._space("observation_space")

    @observation_space.setter
    def observation_space(self, space: Any) -> None:
        self._own_spaces = {**(self._own_spaces or {}), "observation_space": space}

    @property
    def action_space(self) -> Any:
        """The action space of the first environment, or None without any; subclasses may set it."""
        return self._space("action_space")

    @action_space.setter
    def action_space(self, space: Any) -> None:
        self._own_spaces = {**(self._own_spaces or {}), "action_space": space}

    def _space(self, name: str) -> Any:
        if self._own_spaces is not None and name in self._own_spaces:
            return self._own_spaces[name]
        return getattr(self._envs[0], name) if self._envs else None

    def __getattr__(self, name: str) -> Any:
        """Finds the user's `VectorEnv` under the name that RLlib had for it."""
        made = maker_of(self._envs[0]) if name == "vector_env" and self._envs else None
        if made is None:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return made

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
        return to_base_env(env, make_env, num_envs, remote_envs)

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


def maker_of(env: Any) -> Any:
    """Returns the user's `VectorEnv` or `BaseEnv` that an environment is a part of, None for others."""
    inner = _inner(env)
    if isinstance(inner, PolledSimulator):
        return inner.base_env
    return inner.vector_env if isinstance(inner, VectorPlace) else None


def _inner(env: Any) -> Any:
    return user_env(env.env) if isinstance(env, (MultiAgentAdapter, SingleAgentAsMany)) else user_env(env)


def _as_made(env: Any) -> list[Any]:
    """Returns an environment as the user's creator returned it; of one of several, those in it, with its first."""
    inner, maker = _inner(env), maker_of(env)
    if maker is None:
        return [inner]
    return list(_single_envs(maker)) if getattr(inner, "index", 0) == 0 else []


def _single_envs(maker: Any) -> Any:
    """Returns the single environments, by the newer or the older name: whichever the user's class defines."""
    older = type(maker).__dict__.get("get_unwrapped")
    newer = type(maker).__dict__.get("get_sub_environments")
    return maker.get_unwrapped() if older is not None and newer is None else maker.get_sub_environments()
