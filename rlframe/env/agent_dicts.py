"""What environments with several agents say in dicts by agent: spaces, rewards, and who is over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlframe.env.contracts import check_reward
from rlframe.utils.spaces.old_gym import convert_space

#: Key of the flag that ends the episode for all agents.
ALL = "__all__"


def pettingzoo_kind(env: Any) -> str | None:
    """Returns "aec" or "parallel" for an environment of PettingZoo's, which is told without importing it."""
    names = {base.__name__ for base in type(env).__mro__ if base.__module__.startswith("pettingzoo.")}
    if "ParallelEnv" in names:
        return "parallel"
    return "aec" if "AECEnv" in names else None


def finite_reward(reward: Any, agent: Any) -> float:
    """Returns an agent's reward as a float.

    Raises:
        EnvError: If it is not one real number.
        NonFiniteError: If it is NaN or infinite.
    """
    # The difference is 0 for finite numbers alone, and this is asked at every step of every agent.
    if type(reward) is float and reward - reward == 0.0:
        return reward
    return check_reward(reward, f"step(): agent {agent!r}")


def spaces_by_agent(env: Any, name: str) -> Any:
    """Returns an environment's spaces: one for all, `{agent: space}`, or None."""
    by_agent = getattr(env, f"{name}s", None)
    if isinstance(by_agent, Mapping) and by_agent:
        return {agent: convert_space(space) for agent, space in by_agent.items()}
    space = getattr(env, name, None)
    if isinstance(space, Mapping) and not hasattr(space, "sample"):
        return {agent: convert_space(part) for agent, part in space.items()}
    agents = getattr(env, "_agent_ids", None) or getattr(env, "possible_agents", None)
    nested = getattr(space, "spaces", None)
    if isinstance(nested, Mapping) and agents and set(nested) == set(agents):
        return {agent: convert_space(part) for agent, part in nested.items()}
    return None if space is None else convert_space(space)
