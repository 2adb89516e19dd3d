"""Wrappers for environments of either contract: what wraps an environment of the old gym answers as that does."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, cast

import gymnasium

from rlframe.env.adapt import TIME_LIMIT_KEY, KeepsContract, OldGymAdapter, adapt_env
from rlframe.utils.spaces.old_gym import known_to_both

if TYPE_CHECKING:
    _Base = gymnasium.Wrapper[Any, Any, Any, Any]
else:
    _Base = object


class AnyContract:
    """Base beside Gymnasium's for wrappers that are written in its contract, and that old environments fit into."""

    def __new__(cls, env: Any, *args: Any, **kwargs: Any) -> Any:
        """Chooses the contract to answer in, by that of the environment."""
        del args, kwargs
        native = issubclass(cls, KeepsContract) or not isinstance(adapt_env(env), OldGymAdapter)
        return super().__new__(cls if native else _answering_as_wrapped(cast(Any, cls)))


@functools.lru_cache(maxsize=64)
def _answering_as_wrapped(cls: Any) -> type:
    return type(cls.__name__, (_AnswersAsWrapped, cls), {"__module__": cls.__module__, "__doc__": cls.__doc__})


class _AnswersAsWrapped(KeepsContract, _Base):
    """Translates the answers of the wrapper behind it into the contract of what that wraps."""

    env: Any

    def __init__(self, env: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(adapt_env(env), *args, **kwargs)
        self.observation_space = known_to_both(self.observation_space)

    def reset(self, **kwargs: Any) -> Any:
        """Begins an episode; gives an info where the environment does."""
        obs, info = super().reset(**kwargs)
        return (obs, info) if self.env.reset_gives_info else obs

    def step(self, action: Any) -> Any:
        """Does one step; gives as many values as the environment does."""
        obs, reward, terminated, truncated, info = super().step(action)
        if self.env.step_gives == 5:
            return obs, reward, terminated, truncated, info
        if truncated and not terminated:
            info = {**info, TIME_LIMIT_KEY: True}
        return obs, reward, terminated or truncated, info

    def render(self, *args: Any, **kwargs: Any) -> Any:
        """Renders; a mode is handed on."""
        return self.env.render(*args, **kwargs)

    @property
    def spec(self) -> Any:  # type: ignore[override]  # looked up, never set
        """What the environment was made from; the old gym's know nothing of wrappers."""
        return self.env.spec

    def __getattr__(self, name: str) -> Any:
        """Reaches the environment's own attributes, as wrappers of the old gym do."""
        if name.startswith("_") or name == "env":
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.env, name)
