"""The base class of environments with several agents that ask for actions instead of being stepped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlframe.env.external_env import ExternalEnv
from rlframe.env.multi_agent_env import MultiAgentDict
from rlframe.utils.errors import EnvError
from rlframe.utils.spaces.observations import describe
from rlframe.utils.spaces.old_gym import convert_space


class ExternalMultiAgentEnv(ExternalEnv):
    """An `ExternalEnv` whose observations, actions and rewards are dicts by agent.

    Args:
        action_space: One space for all agents, a dict of spaces by agent, or None where every policy has its own.
        observation_space: The same of observations.
        max_concurrent: How many episodes may be open at once.
        timeout_s: See `ExternalEnv`.
    """

    def get_action(self, episode_id: str, observation_dict: MultiAgentDict) -> MultiAgentDict:
        """Returns `{agent: action}` for `{agent: observation}`; agents that are through get none.

        Raises:
            ValueError: If there is no such episode, or an observation is not of its space.
        """
        actions: MultiAgentDict = self.broker.ask(
            "get_action", episode_id, _by_agent("get_action", "observations", observation_dict), None
        )
        return actions

    def log_action(self, episode_id: str, observation_dict: MultiAgentDict, action_dict: MultiAgentDict) -> None:
        """Notes `{agent: action}` that somebody else chose, one for each observation.

        Raises:
            ValueError: If there is no such episode, or an observation has no action, or one of another space.
        """
        obs = _by_agent("log_action", "observations", observation_dict)
        actions = _by_agent("log_action", "actions", action_dict)
        missing = [agent for agent in obs if agent not in actions]
        if missing:
            raise EnvError(f"log_action({episode_id!r}): got no action of {missing}; wanted one for each observation")
        self.broker.ask("log_action", episode_id, obs, actions)

    def log_returns(  # type: ignore[override]  # RLlib's signature: dicts, and one argument more
        self,
        episode_id: str,
        reward_dict: MultiAgentDict,
        info_dict: MultiAgentDict | None = None,
        multiagent_done_dict: MultiAgentDict | None = None,
    ) -> None:
        """Adds `{agent: reward}`, for agents that act or have acted.

        Args:
            episode_id: The episode.
            reward_dict: Rewards since the last action; several calls add up.
            info_dict: Infos by agent.
            multiagent_done_dict: `{agent: whether it is through}`; the others go on.

        Raises:
            ValueError: If there is no such episode, or a reward is no finite number.
        """
        rewards = _by_agent("log_returns", "rewards", reward_dict)
        self.broker.log(episode_id, rewards, info_dict, multiagent_done_dict)

    def end_episode(self, episode_id: str, observation_dict: MultiAgentDict, *, truncated: bool = False) -> None:
        """Ends an episode for all agents; see `ExternalEnv.end_episode`.

        Raises:
            ValueError: If there is no such episode.
        """
        self.broker.end(episode_id, _by_agent("end_episode", "observations", observation_dict), truncated)

    def to_caller(self, actions: Mapping[Any, Any]) -> Any:
        """Returns what `get_action` returns: actions by agent."""
        return dict(actions)


def adapt_external(env: ExternalEnv) -> ExternalEnv:
    """Returns a simulator with a main loop of its own, its spaces being Gymnasium's.

    Raises:
        EnvError: If its constructor was not called, or a space is none.
    """
    if not hasattr(env, "broker"):
        name = type(env).__name__
        raise EnvError(f"{name} has not called super().__init__(action_space, observation_space) in its __init__()")
    for name in ("action_space", "observation_space"):
        space = getattr(env, name)
        if isinstance(space, dict):
            space = {agent: convert_space(part) for agent, part in space.items()}
        elif space is not None or not isinstance(env, ExternalMultiAgentEnv):
            space = convert_space(space)
        setattr(env, name, space)
    return env


def _by_agent(name: str, what: str, given: Any) -> MultiAgentDict:
    if not isinstance(given, Mapping):
        raise EnvError(f"{name}(): got {what} as {describe(given)}; wanted a dict by agent id")
    return dict(given)
