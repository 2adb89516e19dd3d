"""`check_env` for environments with several agents."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from gymnasium import spaces

from rlframe.env.agent_dicts import ALL
from rlframe.env.multi_agent_adapt import MultiAgentAdapter
from rlframe.utils.errors import EnvError, NonFiniteError, describe_error
from rlframe.utils.spaces.observations import check_observation, describe


def check_multi_agent_env(env: Any, where: str, num_steps: int, seed: int) -> None:
    """Checks `reset()` and some steps in which all agents with an observation act at random.

    Args:
        env: A `MultiAgentEnv`, or an environment of PettingZoo's.
        where: What to call it in error messages.
        num_steps: Steps to take, in env steps.
        seed: Seed of the reset and of the random actions.

    Raises:
        EnvError: At the first fault; names the agent.
        NonFiniteError: If a reward or observation is NaN or infinite.
    """
    checked = _Checked(MultiAgentAdapter(env), where, seed)
    acting = checked.reset(seed)
    for number in range(1, num_steps + 1):
        following = checked.step(acting, f"{where}: step {number}")
        acting = checked.reset(None) if following is None else following


class _Checked:
    def __init__(self, env: MultiAgentAdapter, where: str, seed: int) -> None:
        self._env, self._where, self._seed = env, where, seed
        self._through: set[Any] = set()
        self._action_spaces: dict[Any, spaces.Space[Any]] = {}

    def reset(self, seed: int | None) -> list[Any]:
        """Returns the ids of the agents that act first."""
        self._through = set()
        call = f"{self._where}: reset()"
        return self._look_at(_called(call, lambda: self._env.reset(seed=seed))[0], call)

    def step(self, acting: list[Any], call: str) -> list[Any] | None:
        """Returns the ids of the agents that act next; None where the episode is over."""
        actions = {agent: self._action_space(agent).sample() for agent in acting}
        obs, _, terminateds, truncateds, _ = _called(call, lambda: self._env.step(actions))
        self._through |= {agent for ends in (terminateds, truncateds) for agent, over in ends.items() if over}
        observing = self._look_at(obs, call)
        return None if ALL in self._through else observing

    def _look_at(self, obs: dict[Any, Any], call: str) -> list[Any]:
        for agent, seen in obs.items():
            check_observation(seen, self._space("observation_space", agent), f"{call}, agent {agent!r}")
        return [agent for agent in obs if agent not in self._through]

    def _action_space(self, agent: Any) -> spaces.Space[Any]:
        if agent not in self._action_spaces:
            space = copy.deepcopy(self._space("action_space", agent))
            space.seed(self._seed + len(self._action_spaces))
            self._action_spaces[agent] = space
        return self._action_spaces[agent]

    def _space(self, name: str, agent: Any) -> spaces.Space[Any]:
        space = getattr(self._env, name)
        space = space.get(agent) if isinstance(space, dict) else space
        if not isinstance(space, spaces.Space):
            raise EnvError(
                f"{self._where}: {name} of agent {agent!r} is {space!r} ({describe(space)}); wanted a space of "
                "gymnasium.spaces, one for all agents or one by id."
            )
        return space


def _called(call: str, function: Callable[[], Any]) -> Any:
    try:
        return function()
    except (EnvError, NonFiniteError) as error:
        raise type(error)(f"{call}: {error}") from error
    except Exception as error:
        raise EnvError(f"{call} raised {describe_error(error)}") from error
