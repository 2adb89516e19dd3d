"""Each action done several times in a row, as algorithms that learn from pictures want it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium

from rlframe.env.registry import SpecCreator

#: Key of `env_config` that says how often.
FRAME_SKIP = "frame_skip"


class RepeatedActions(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Does each action several times, and adds the rewards; ends where the environment does.

    Args:
        env: The environment.
        count: How often.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], count: int) -> None:
        super().__init__(env)
        self.count = count

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Returns what the last of the steps returned, with the sum of the rewards."""
        total = 0.0
        for _ in range(self.count):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return obs, total, terminated, truncated, info


@dataclass(frozen=True)
class RepeatingCreator(SpecCreator):
    """Makes a registered environment that does each action `frame_skip` of `env_config` times.

    Its own limit of steps is one of actions then, so that a `horizon` can raise it as any other.
    """

    def __call__(self, context: Mapping[str, Any]) -> Any:
        """Returns an environment made with the other keys of `env_config` as arguments."""
        others: Any = {key: value for key, value in context.items() if key != FRAME_SKIP}
        count, limit = int(context.get(FRAME_SKIP, 1)), others.get("max_episode_steps", self.spec.max_episode_steps)
        if count == 1:
            return super().__call__(others)
        if self.make is not gymnasium.make or not limit or limit < 0:
            return RepeatedActions(super().__call__(others), count)
        endless = super().__call__({**others, "max_episode_steps": -1})  # type: ignore[arg-type]  # keys are all it reads
        return gymnasium.wrappers.TimeLimit(RepeatedActions(endless, count), math.ceil(limit / count))
