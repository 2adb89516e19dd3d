"""Checks that users can run on their environment before they train on it.

`check_env(MyEnv())` tries everything once. `check_observation` and `check_step_result` are its parts, which the sampler
uses too.
"""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
from gymnasium import spaces

from rlframe.env.adapt import adapt_env
from rlframe.env.contracts import check_reset_result, check_reward, check_step_result
from rlframe.env.multi_agent_adapt import is_multi_agent
from rlframe.env.multi_agent_checks import check_multi_agent_env
from rlframe.utils.errors import EnvError, NonFiniteError, describe_error
from rlframe.utils.spaces.observations import check_observation, describe

__all__ = ["check_env", "check_observation", "check_reset_result", "check_reward", "check_spaces", "check_step_result"]


def check_env(env: Any, *, where: str = "environment", num_steps: int = 20, seed: int = 0) -> None:
    """Checks spaces, `reset()` and some random steps of an environment, which needs a reset afterwards.

    The first fault raises `EnvError`, naming the leaf of the observation, the value and the bound, or the shape or type
    that was got and wanted. NaN or infinity in an observation or reward raises `NonFiniteError`.

    Args:
        env: The environment: Gymnasium's, the old gym's, any object with `reset`, `step` and two spaces, or one with
            several agents.
        where: What to call it in error messages.
        num_steps: Random steps to take, in env steps.
        seed: Seed of the reset and of the random actions.
    """
    if is_multi_agent(env):
        return check_multi_agent_env(env, where, num_steps, seed)
    env = adapt_env(env)
    check_spaces(env, where)
    action_space = copy.deepcopy(env.action_space)  # sampling must not move the environment's own generator
    action_space.seed(seed)
    _check_reset(env, where, seed)
    for number in range(1, num_steps + 1):
        if _check_step(env, action_space.sample(), f"{where}: step {number}"):
            _check_reset(env, where, None)
    return None


def check_spaces(env: gymnasium.Env[Any, Any], where: str = "environment") -> None:
    """Checks that both spaces are Gymnasium spaces.

    Raises:
        EnvError: If one is missing or something else.
    """
    for name in ("observation_space", "action_space"):
        space = getattr(env, name, None)
        if not isinstance(space, spaces.Space):
            raise EnvError(
                f"{where}: {name} is {space!r} ({describe(space)}); wanted a space of gymnasium.spaces, set at the "
                "latest at the end of __init__."
            )


def _check_reset(env: gymnasium.Env[Any, Any], where: str, seed: int | None) -> None:
    call = f"{where}: reset()"
    try:
        result = env.reset(seed=seed)
    except (EnvError, NonFiniteError):
        raise
    except Exception as error:
        raise EnvError(f"{call} raised {describe_error(error)}") from error
    obs, _ = check_reset_result(result, call)
    check_observation(obs, env.observation_space, call)


def _check_step(env: gymnasium.Env[Any, Any], action: Any, where: str) -> bool:
    """Takes one step and tells whether it ended the episode."""
    call = f"{where} with action {repr(action)[:80]}"
    try:
        result = env.step(action)
    except (EnvError, NonFiniteError):
        raise
    except Exception as error:
        raise EnvError(f"{call} raised {describe_error(error)}") from error
    obs, _, terminated, truncated, _ = check_step_result(result, call)
    check_observation(obs, env.observation_space, call)
    return terminated or truncated
