"""DeepMind's `dm_env` environments as Gymnasium's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlframe.utils.errors import EnvError
from rlframe.utils.spaces.old_gym import known_to_both


def space_of(spec: Any) -> spaces.Space[Any]:
    """Returns the space of a spec of `dm_env`, or of a mapping of them.

    Raises:
        EnvError: If a spec describes no array of numbers.
    """
    if isinstance(spec, Mapping):
        return spaces.Dict({name: space_of(inner) for name, inner in spec.items()})
    if hasattr(spec, "num_values"):
        return spaces.Discrete(int(spec.num_values))
    if np.dtype(getattr(spec, "dtype", object)).kind not in "fiub":
        raise EnvError(f"got the spec {spec!r}; wanted an array of numbers, or a dict of such")
    bounded = hasattr(spec, "minimum")
    low, high = (spec.minimum, spec.maximum) if bounded else (-np.inf, np.inf)
    dtype: Any = np.float32 if np.issubdtype(spec.dtype, np.floating) or not bounded else spec.dtype
    low, high = (np.broadcast_to(bound, spec.shape).astype(dtype) for bound in (low, high))
    return spaces.Box(low, high, dtype=dtype)


class DMEnv(gymnasium.Env[Any, Any]):
    """An environment of `dm_env`; what it observes keeps its structure.

    An episode that ends with a discount of 0 is terminated; with another its time was over, and it is truncated.

    Args:
        dm_env: The environment: `reset()`, `step(action)`, `observation_spec()`, `action_spec()`.
    """

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - declared so by Gymnasium

    def __init__(self, dm_env: Any) -> None:
        self._env = dm_env
        self.observation_space = known_to_both(space_of(dm_env.observation_spec()))
        self.action_space = known_to_both(space_of(dm_env.action_spec()))
        self._seen: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode; a seed reaches environments whose task has `random`, as those of the Control Suite."""
        super().reset(seed=seed, options=options)
        random = getattr(getattr(self._env, "task", None), "random", None)
        if seed is not None and random is not None:
            random.seed(seed % 2**32)
        return self._observe(self._env.reset()), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Does one step; the info has its `discount`."""
        made = self._env.step(action)
        return self._outcome(made, float(made.reward or 0.0))

    def render(self, mode: str = "rgb_array") -> Any:
        """Returns the last observation, for environments that observe pictures, whatever the mode."""
        del mode
        return self._seen

    def close(self) -> None:
        """Frees what the environment holds."""
        self._env.close()

    def _observe(self, step: Any) -> Any:
        space: Any = self.observation_space
        self._seen = _as_in(space, step.observation)
        return self._seen

    def _outcome(self, step: Any, reward: float) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        terminated = bool(step.last() and step.discount == 0.0)
        obs = self._observe(step)
        return obs, reward, terminated, bool(step.last()) and not terminated, {"discount": step.discount}


def _as_in(space: Any, value: Any) -> Any:
    """Returns an observation in the dtypes of its space."""
    if isinstance(space, spaces.Dict):
        return {name: _as_in(inner, value[name]) for name, inner in space.spaces.items()}
    return int(value) if isinstance(space, spaces.Discrete) else np.asarray(value, space.dtype)
