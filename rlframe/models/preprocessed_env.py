"""An environment of the old gym with its observations preprocessed, in the contract that it has."""

from __future__ import annotations

from typing import Any

from rlframe.utils.spaces.observations import fits_space


class PreprocessedEnv:
    """Preprocesses what `reset` and `step` of an environment return; everything else is the environment's.

    Args:
        env: An environment of any contract.
        preprocessor: Makes what it observes to arrays.
    """

    def __init__(self, env: Any, preprocessor: Any) -> None:
        self.env = env
        self.preprocessor = preprocessor
        self.observation_space = preprocessor.observation_space
        self.action_space = env.action_space

    def reset(self, **kwargs: Any) -> Any:
        """Begins an episode."""
        result = self.env.reset(**kwargs)
        with_info = isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)
        if with_info and not fits_space(result, self.preprocessor._obs_space):
            return self.preprocessor.transform(result[0]), result[1]
        return self.preprocessor.transform(result)

    def step(self, action: Any) -> tuple[Any, ...]:
        """Does one step."""
        obs, *rest = self.env.step(action)
        return (self.preprocessor.transform(obs), *rest)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "env":
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.env, name)
