"""How the environment of a slot is made, and made anew: whatever a user gives gets the contract of the loop."""

from __future__ import annotations

import logging
import numbers
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlframe.env.adapt import adapt_env
from rlframe.env.base_env import BaseEnv
from rlframe.env.external_env import ExternalEnv
from rlframe.env.external_multi_agent_env import adapt_external
from rlframe.env.multi_agent_adapt import MultiAgentAdapter, SingleAgentAsMany, is_multi_agent
from rlframe.env.polled_simulator import PolledSimulator
from rlframe.env.sub_environments import SubEnvironment
from rlframe.evaluation.episode import DUMMY_AGENT_ID
from rlframe.utils.errors import EnvError, NonFiniteError, describe_error

if TYPE_CHECKING:
    from rlframe.env.env_context import EnvContext

_LOGGER = logging.getLogger("rlframe")


def _hint(error: Exception) -> str:
    """Returns what to do about an error of programs that were written for an older Gym."""
    asked = getattr(error, "obj", None)
    env = isinstance(asked, super) or any(base.__name__ == "Env" for base in type(asked).__mro__)
    if isinstance(error, AttributeError) and error.name == "seed" and env:
        return ". Gym's Env has no seed() since 0.26: define `def seed(self, seed=None)` there, or do not call it"
    return ""


class OwnsEnvironment:
    """The part of an `EnvSlot` that makes its environment."""

    env: Any
    index: int
    worker_index: int
    sub_env: SubEnvironment | None
    _creator: Callable[[EnvContext], Any]
    _context: EnvContext
    _horizon: int | None
    _as_many: bool
    _on_made: Callable[[Any, EnvContext], None] | None

    def _make(self) -> Any:
        try:
            made = self._creator(self._context)
            env = self._adapted(made)
        except (EnvError, NonFiniteError):
            raise
        except Exception as error:
            raise EnvError(
                f"could not make the environment of worker {self.worker_index}, slot {self.index}: "
                f"{describe_error(error)}{_hint(error)}"
            ) from error
        if self._horizon is not None:
            _allow_steps(env, self._horizon)
        if self._on_made is not None:
            self._on_made(made, self._context)
        return env

    def _adapted(self, env: Any) -> Any:
        """Returns an environment with the contract that the sampling loop expects of it."""
        if isinstance(env, BaseEnv):
            env = PolledSimulator(env)
        if isinstance(env, ExternalEnv):
            return adapt_external(env)
        if isinstance(env, SubEnvironment):
            self.sub_env = env
        if is_multi_agent(env):
            return MultiAgentAdapter(env)
        adapted = adapt_env(env)
        return SingleAgentAsMany(adapted, DUMMY_AGENT_ID) if self._as_many else adapted

    def recreate(self) -> None:
        """Replaces a broken environment by a new one; closing the old one may fail, that changes nothing."""
        old = self.env
        self.env = self._make()
        try:
            old.close()
        except Exception as error:
            _LOGGER.warning("closing the broken environment of slot %s raised %r", self.index, error)


def _allow_steps(env: Any, horizon: int) -> None:
    """Raises lower limits of steps to the horizon, in wrappers wherever they stand, and in copies of a `VectorEnv`."""
    name, seen = "_max_episode_steps", set[int]()
    while env is not None and id(env) not in seen:
        seen.add(id(env))
        attributes = getattr(env, "__dict__", {})
        limit = attributes.get(name, getattr(type(env), name, None))
        if isinstance(limit, numbers.Real) and limit < horizon:
            setattr(env, name, horizon)
        env = env.single() if isinstance(env, SubEnvironment) else attributes.get("env")
