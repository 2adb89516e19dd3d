"""The base class of environments with several agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium

if TYPE_CHECKING:
    from rlframe.env.wrappers.group_agents_wrapper import GroupAgentsWrapper

MultiAgentDict = dict[Any, Any]

# Key of the observation under which a group of agents finds the state of the whole environment.
ENV_STATE = "state"


class MultiAgentEnv:
    """An environment in which agents, known by any hashable id, act at the same time or in turns.

    Only agents whose observation is returned act in the next step. `terminateds` and `truncateds` (or the older
    `dones`) carry the key `"__all__"`, which ends the episode for everybody.
    """

    observation_space: Any = None
    action_space: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Starts an episode.

        Returns:
            `{agent id: observation}` of the agents that act first, or that and a dict of infos.
        """
        raise NotImplementedError(f"{type(self).__name__} must define reset().")

    def step(self, action_dict: MultiAgentDict) -> tuple[MultiAgentDict, ...]:
        """Lets the agents act.

        Args:
            action_dict: `{agent id: action}`, one for every agent of the last observations.

        Returns:
            Dicts by agent id: observations, rewards, terminateds, truncateds, infos; or observations, rewards,
            dones, infos.
        """
        raise NotImplementedError(f"{type(self).__name__} must define step().")

    def render(self, mode: str | None = None) -> Any:  # noqa: ARG002 (overridden by environments that have modes)
        """Shows the environment; draws nothing unless overridden."""
        return None

    def close(self) -> None:
        """Frees what the environment holds; nothing unless overridden."""

    def with_agent_groups(
        self, groups: Mapping[Any, Sequence[Any]], obs_space: Any = None, act_space: Any = None
    ) -> GroupAgentsWrapper:
        """Returns this environment with groups of agents in the place of their members; see `GroupAgentsWrapper`.

        Args:
            groups: `{group id: [agent id, ...]}`; agents in none stay as they are.
            obs_space: `Tuple` space of a group's observations; None makes it of the members' spaces.
            act_space: `Tuple` space of a group's actions; None makes it of the members' spaces.

        Raises:
            EnvError: If the groups do not fit the environment; names the agent.
        """
        from rlframe.env.wrappers.group_agents_wrapper import GroupAgentsWrapper

        return GroupAgentsWrapper(self, groups, obs_space, act_space)


def make_multi_agent(env_name_or_creator: str | Callable[..., Any]) -> type[MultiAgentEnv]:
    """Returns a `MultiAgentEnv` class of N independent copies of an environment.

    An agent whose copy has ended is through; the episode is over when all are.

    Args:
        env_name_or_creator: A Gymnasium id, or a function from the environment's config to an environment.

    Returns:
        A class whose config has `num_agents` (1), the agents being numbered from 0; the rest is for the copies.
    """
    creator = env_name_or_creator if isinstance(env_name_or_creator, str) else staticmethod(env_name_or_creator)
    return type("MultiEnv", (_Copies,), {"made_by": creator, "__doc__": _Copies.__doc__})


class _Copies(MultiAgentEnv):
    """N copies of an environment side by side."""

    #: A Gymnasium id, or a function from the environment's config to an environment.
    made_by: Any = None

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        options = dict(config or {})
        count = int(options.pop("num_agents", 1))
        self.agents = [self._make(options) for _ in range(count)]
        self._agent_ids = list(range(count))
        self.observation_space = self.agents[0].observation_space
        self.action_space = self.agents[0].action_space
        self.terminateds: set[int] = set()
        self.truncateds: set[int] = set()

    def _make(self, options: dict[str, Any]) -> Any:
        made_by = type(self).made_by
        return gymnasium.make(made_by, **options) if isinstance(made_by, str) else made_by(options)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Starts all copies."""
        del options
        self.terminateds, self.truncateds = set(), set()
        started = [env.reset(seed=None if seed is None else seed + index) for index, env in enumerate(self.agents)]
        return {index: obs for index, (obs, _) in enumerate(started)}, {
            index: info for index, (_, info) in enumerate(started)
        }

    def step(self, action_dict: MultiAgentDict) -> tuple[MultiAgentDict, ...]:
        """Steps the copies of the agents that act."""
        obs, rewards, terminateds, truncateds, infos = {}, {}, {}, {}, {}
        for index, action in action_dict.items():
            made = self.agents[index].step(action)
            obs[index], rewards[index], terminateds[index], truncateds[index], infos[index] = made
            if terminateds[index]:
                self.terminateds.add(index)
            if truncateds[index]:
                self.truncateds.add(index)
        over = len(self.terminateds | self.truncateds) == len(self.agents)
        # Where the last of them were cut off, so is the episode.
        terminateds["__all__"] = over and not self.truncateds
        truncateds["__all__"] = over and bool(self.truncateds)
        return obs, rewards, terminateds, truncateds, infos

    def render(self, mode: str | None = None) -> Any:
        """Shows the first copy."""
        del mode
        return self.agents[0].render()

    def close(self) -> None:
        """Closes all copies."""
        for env in self.agents:
            env.close()
