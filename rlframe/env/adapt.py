"""Gives every environment Gymnasium's interface; Gymnasium's own are handed back as they are."""

from __future__ import annotations

import functools
import inspect
import itertools
import logging
import sys
from typing import Any, Literal

import gymnasium
from gymnasium import spaces
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv

from rlframe.env.contracts import check_step_result, reset_takes
from rlframe.utils.errors import EnvError
from rlframe.utils.spaces.observations import describe, fits_space
from rlframe.utils.spaces.old_gym import convert_space

logger = logging.getLogger(__name__)

# Set by the old gym's TimeLimit wrapper in the info of the last step.
TIME_LIMIT_KEY = "TimeLimit.truncated"

_OF_GYMNASIUM = "a Gymnasium vector environment; give the single environment and set num_envs_per_worker"

_unseedable_said: set[str] = set()
_MOST_INSIDE = 1000
"""How many environments within one another are looked at, and how many parts of one list."""


def adapt_env(env: Any) -> gymnasium.Env[Any, Any]:
    """Returns an environment with Gymnasium's interface: `reset(seed=, options=)` and a 5-tuple from `step()`.

    A `gymnasium.Env` comes back itself, without a wrapper. Anything else that has `reset`, `step` and two spaces is
    wrapped in an `OldGymAdapter`; so is a `gymnasium.Env` that keeps to the old contract, which is known by a
    `reset()` that takes no `seed` or by spaces of the old gym.

    Raises:
        EnvError: If `env` is no environment, lacks its spaces, or is of a kind that cannot be stepped singly.
    """
    several = _OF_GYMNASIUM if isinstance(env, GymnasiumVectorEnv) else getattr(type(env), "not_single", None)
    if several is not None:
        raise EnvError(f"{type(env).__name__} is {several}.")
    missing = [name for name in ("reset", "step") if not callable(getattr(env, name, None))]
    missing += [name for name in ("observation_space", "action_space") if getattr(env, name, None) is None]
    if missing:
        raise EnvError(
            f"{env!r} ({type(env).__name__}) is no environment: it lacks {', '.join(missing)}. Wanted an object with "
            "reset(), step(action), observation_space and action_space, set at the latest at the end of __init__."
        )
    return env if _is_native(env) else OldGymAdapter(env)


def warn_unseedable(env: Any) -> None:
    """Warns, once, that the seed which an environment of the loop is given does not reach it."""
    adapted = env if isinstance(env, OldGymAdapter) else getattr(env, "env", None)
    why = adapted.unseedable if isinstance(adapted, OldGymAdapter) else None
    if why is not None and why not in _unseedable_said:
        _unseedable_said.add(why)
        logger.warning("%s", why)


def _ready_old_wrappers(env: Any) -> None:
    """Has the wrappers that gym 0.26's `make` puts around an environment work with NumPy 2 and the contract before it.

    The checker of first steps is told that there was one: it needs a name that NumPy 2 no longer has, and what it looks
    at is checked here as well. The time limit counts steps of 4 items, too. Environments inside are found in
    attributes, singly or in lists and dicts.
    """
    if "gym" not in sys.modules:
        return
    waiting, seen = [env], set[int]()
    while waiting and len(seen) < _MOST_INSIDE:
        inner = waiting.pop()
        if id(inner) in seen or not hasattr(inner, "__dict__"):
            continue
        seen.add(id(inner))
        kind = type(inner)
        if kind.__name__ == "PassiveEnvChecker" and kind.__module__.startswith("gym."):
            inner.checked_step = True
        if kind.__name__ == "TimeLimit" and kind.__module__.startswith("gym.") and "step" not in vars(inner):
            inner.step = functools.partial(_step_within_limit, inner)
        for value in vars(inner).values():
            several = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
            waiting += [each for each in (value, *itertools.islice(several, _MOST_INSIDE)) if _may_be_env(each)]


def _step_within_limit(limit: Any, action: Any) -> Any:
    """Does a step of the environment in an old gym's TimeLimit, and returns as many items as that does: 4 or 5."""
    result = limit.env.step(action)
    limit._elapsed_steps += 1
    over = limit._elapsed_steps >= limit._max_episode_steps
    if not over or not isinstance(result, (tuple, list)):
        return result
    if len(result) == 4:
        obs, reward, done, info = result
        return obs, reward, True, {**info, TIME_LIMIT_KEY: not done}
    obs, reward, terminated, _, info = result
    return obs, reward, terminated, True, info


def _may_be_env(value: Any) -> bool:
    return not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in ("reset", "step"))


def user_env(env: Any) -> Any:
    """Returns what the user's creator returned: `env` without the adapter, if it has one."""
    return env.env if isinstance(env, OldGymAdapter) else env


class KeepsContract:
    """Marks wrappers of Gymnasium's kind that answer in the contract of what they wrap, which is an older one."""


def _is_native(env: Any) -> bool:
    if not isinstance(env, gymnasium.Env) or isinstance(env, KeepsContract):
        return False
    if not isinstance(env.observation_space, spaces.Space) or not isinstance(env.action_space, spaces.Space):
        return False
    return reset_takes(env, "seed") is not None


class OldGymAdapter(gymnasium.Env[Any, Any]):
    """An environment of the old gym contract (0.21 to 0.26, or written without any library), in Gymnasium's.

    - `step()` may return 4 or 5 items, in a tuple or a list. Of 4, a `done` counts as truncation if the info says
      `TimeLimit.truncated`, and as termination otherwise.
    - `reset()` may return the observation or `(observation, info)`; which of the two is decided at the first reset.
    - Seeds go to `reset(seed=…)` where that names the argument, otherwise to `seed(…)` before the reset.
    - Attributes that Gymnasium does not know are those of the environment inside, `unwrapped` is that environment's.

    Attributes:
        env: The environment as its creator returned it.
        reset_gives_info: Whether its `reset()` returns an info; None before the first.
        step_gives: How many items its last `step()` returned.
    """

    def __init__(self, env: Any) -> None:
        """Looks at the signatures once; nothing is called."""
        self.env = env
        _ready_old_wrappers(env)
        self.observation_space = convert_space(env.observation_space)
        self.action_space = convert_space(env.action_space)
        self.metadata = getattr(env, "metadata", None) or {"render_modes": []}
        self.render_mode = getattr(env, "render_mode", None)
        self.spec = getattr(env, "spec", None)
        self._takes_options = reset_takes(env, "options") is not None
        self._seed_into = self._find_seeding()
        self.reset_gives_info: bool | None = None
        self.step_gives = 5

    def _find_seeding(self) -> Literal["reset", "seed"] | None:
        takes = reset_takes(self.env, "seed")
        if takes == "named":
            return "reset"
        if callable(getattr(self.env, "seed", None)):
            return "seed"
        return "reset" if takes == "swallowed" else None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode and returns `(observation, info)`; info is empty if the environment gives none."""
        arguments: dict[str, Any] = {}
        if seed is not None:
            if self._seed_into == "reset":
                arguments["seed"] = seed
            elif self._seed_into == "seed":
                self.env.seed(seed)
        if options is not None and self._takes_options:
            arguments["options"] = options
        return self._split(self.env.reset(**arguments))

    def _split(self, result: Any) -> tuple[Any, dict[str, Any]]:
        pair = isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)
        if self.reset_gives_info is None:
            self.reset_gives_info = pair and self._is_with_info(result)
        if not self.reset_gives_info:
            return result, {}
        if not pair:
            raise EnvError(
                f"reset() of {type(self.env).__name__} returned (observation, info) at first and now a "
                f"{describe(result)}. Return the same form every time."
            )
        return result[0], result[1]

    def _is_with_info(self, pair: tuple[Any, Any]) -> bool:
        """Tells `(observation, info)` from an observation that is itself a pair with a dict in second place."""
        space = self.observation_space
        if not isinstance(space, spaces.Tuple) or len(space.spaces) != 2:
            return True
        return fits_space(pair[0], space)

    @property
    def unseedable(self) -> str | None:
        """Why no seed reaches the environment, and what to do; None where one does."""
        if self._seed_into is None:
            return (
                f"{type(self.env).__name__} cannot be seeded: its reset() takes no `seed` and it has no seed(). Runs "
                "with it are not reproducible; give it `reset(self, *, seed=None, options=None)`."
            )
        return getattr(self.env, "unseedable", None)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Does one step and returns five items."""
        result = self.env.step(action)
        result = tuple(result) if isinstance(result, list) else result
        size = self.step_gives = len(result) if isinstance(result, tuple) else 0
        if size == 5:
            obs, reward, terminated, truncated, info = result
            return obs, reward, bool(terminated), bool(truncated), info
        if size == 4 and isinstance(result[3], dict):
            obs, reward, done, info = result
            truncated = bool(done) and bool(info.get(TIME_LIMIT_KEY, False))
            return obs, reward, bool(done) and not truncated, truncated, info
        return check_step_result(result, f"step() of {type(self.env).__name__}")

    def render(self, mode: str | None = None) -> Any:
        """Renders; `mode` is handed on where it is given and the environment has several."""
        if mode is not None and "mode" in inspect.signature(self.env.render).parameters:
            return self.env.render(mode=mode)
        return self.env.render()

    def close(self) -> None:
        """Closes the environment, if it knows how."""
        close = getattr(self.env, "close", None)
        if callable(close):
            close()

    @property
    def unwrapped(self) -> Any:
        """The innermost environment of the user."""
        return getattr(self.env, "unwrapped", self.env)

    @property
    def np_random(self) -> Any:
        """The environment's own random generator."""
        return self.env.np_random

    @np_random.setter
    def np_random(self, value: Any) -> None:
        self.env.np_random = value

    def __getattr__(self, name: str) -> Any:
        """Reaches the environment's own attributes and methods."""
        # Copying and unpickling ask for attributes before `env` is there; without this they would recurse.
        if name == "env" or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.env, name)

    def __str__(self) -> str:
        """Shows the environment inside."""
        return f"OldGymAdapter({self.env})"
