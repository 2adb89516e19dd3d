"""The base class of environments with several agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

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
