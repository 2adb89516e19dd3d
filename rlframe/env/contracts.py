"""What `reset()` and `step()` must return, checked, with errors that name what was returned instead."""

from __future__ import annotations

import inspect
from typing import Any, Literal

import numpy as np

from rlframe.utils.errors import EnvError, NonFiniteError
from rlframe.utils.spaces.observations import describe

StepResult = tuple[Any, float, bool, bool, dict[str, Any]]

NEW_STEP = "(observation, reward: float, terminated: bool, truncated: bool, info: dict)"
OLD_STEP = "(observation, reward: float, done: bool, info: dict)"


def _shown(result: Any) -> str:
    """Returns e.g. `a tuple of length 2: (float32 array of shape (4,), dict of length 0)`."""
    if not isinstance(result, (tuple, list)):
        return f"one {describe(result)}"
    return f"a {type(result).__name__} of length {len(result)}: ({', '.join(describe(item) for item in result)})"


def _step_error(result: Any, where: str, fault: str = "") -> EnvError:
    return EnvError(
        f"{where} returned {_shown(result)}.{fault} Wanted {NEW_STEP} from a Gymnasium environment, or {OLD_STEP} from "
        "one of the older gym contract, which must subclass gym.Env or nothing, not gymnasium.Env."
    )


def check_reset_result(result: Any, where: str = "reset()") -> tuple[Any, dict[str, Any]]:
    """Returns `(observation, info)` if that is what `reset()` returned.

    Raises:
        EnvError: If it returned anything else.
    """
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict):
        return result
    raise EnvError(
        f"{where} returned {_shown(result)}. Wanted (observation, info: dict) from a Gymnasium environment; one that "
        "returns the bare observation must subclass gym.Env or nothing, not gymnasium.Env."
    )


def check_step_result(result: Any, where: str = "step()") -> StepResult:
    """Returns the five items of a step, reward as float and flags as bool.

    Raises `EnvError` if there are not five or one has the wrong type, `NonFiniteError` if the reward is not finite.

    Args:
        result: What the (adapted) environment's `step()` returned.
        where: What is being checked, e.g. `"step() of worker 1, slot 0"`; begins the error message.
    """
    if not isinstance(result, tuple) or len(result) != 5:
        raise _step_error(result, where)
    obs, reward, terminated, truncated, info = result
    if not isinstance(info, dict):
        raise _step_error(result, where, f" Its info is a {describe(info)}, not a dict.")
    flags = []
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if not _is_flag(flag):
            raise _step_error(result, where, f" Its {name} is {repr(flag)[:80]}, not a bool.")
        flags.append(bool(flag))
    return obs, check_reward(reward, where), flags[0], flags[1], info


def check_reward(reward: Any, where: str = "step()") -> float:
    """Returns a reward as a Python float.

    Raises:
        EnvError: If it is not one real number.
        NonFiniteError: If it is NaN or infinite.
    """
    if not _is_number(reward):
        raise EnvError(
            f"{where} returned the reward {repr(reward)[:80]} ({describe(reward)}); wanted one number. "
            "Return `float(reward)`; for an array of shape (1,), `float(reward[0])`."
        )
    value = float(reward)
    if not np.isfinite(value):
        raise NonFiniteError(f"{where} returned the reward {value}; rewards must be finite.")
    return value


def _is_number(value: Any) -> bool:
    """Tells whether `value` is one real number: Python's, NumPy's, or an array without dimensions."""
    if isinstance(value, (bool, int, float)):
        return True
    return isinstance(value, (np.generic, np.ndarray)) and value.shape == () and value.dtype.kind in "fiub"


def _is_flag(flag: Any) -> bool:
    """Tells whether `flag` is a bool, or a 0 or 1 that stands for one."""
    if isinstance(flag, (bool, np.bool_)):
        return True
    if isinstance(flag, (int, np.integer)):
        return int(flag) in (0, 1)
    return isinstance(flag, np.ndarray) and flag.shape == () and flag.dtype.kind == "b"


def reset_takes(env: Any, keyword: str) -> Literal["named", "swallowed"] | None:
    """Tells how `env.reset` takes `keyword`: by name, through `**kwargs`, or not at all.

    Wrappers of the old gym hand `**kwargs` to the environment inside, so that one's `reset` decides.
    """
    try:
        parameters = inspect.signature(env.reset).parameters
    except ValueError:  # written in C, without a signature: nothing is known, so nothing is passed
        return None
    named = parameters.get(keyword)
    if named is not None and named.kind not in (named.POSITIONAL_ONLY, named.VAR_POSITIONAL, named.VAR_KEYWORD):
        return "named"
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return None
    inner = getattr(env, "env", None)
    if inner is not None and inner is not env and callable(getattr(inner, "reset", None)):
        return reset_takes(inner, keyword)
    return "swallowed"
