"""When a training run is done, and how far it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from rlframe.utils.errors import ConfigError


@dataclass(frozen=True)
class StopCriterion:
    """Limits under the names they have in a result; the first one reached ends the run. None is no limit.

    Attributes:
        episode_reward_mean: Mean return, in reward units of the environment.
        timesteps_total: Environment steps sampled.
        training_iteration: Calls of `train()`.
        time_total_s: Seconds of training, those before a restore included.
    """

    episode_reward_mean: float | None = None
    timesteps_total: int | None = None
    training_iteration: int | None = None
    time_total_s: float | None = None

    @classmethod
    def from_dict(cls, limits: Mapping[str, Any]) -> StopCriterion:
        """Returns the criterion that a dict of limits says.

        Raises:
            ConfigError: If a name is unknown or a limit is no number.
        """
        known = [field.name for field in fields(cls)]
        for name, limit in limits.items():
            if name not in known:
                raise ConfigError(f"stop: unknown key {name!r}, wanted one of {', '.join(known)}")
            plain = isinstance(limit, (int, float)) and not isinstance(limit, bool) and abs(limit) < math.inf
            if not plain and limit is not None:
                raise ConfigError(f"stop.{name}: got {limit!r}, wanted a number")
        return cls(**limits)

    @classmethod
    def from_text(cls, text: str | None) -> StopCriterion:
        """Returns the criterion that a dict of limits in YAML or JSON says; None limits nothing.

        Raises:
            ConfigError: If it is something else.
        """
        from rlframe.utils.yaml_text import parse_yaml

        limits = {} if text is None else parse_yaml(text, where="--stop")
        if not isinstance(limits, dict):
            raise ConfigError(f"--stop: got {text!r}, wanted a dict of limits: '{{\"timesteps_total\": 100000}}'")
        return cls.from_dict(limits)

    def limits(self) -> dict[str, float]:
        """Returns the limits that are set, by name."""
        return {name: limit for name, limit in vars(self).items() if limit is not None}

    def updated(self, other: StopCriterion) -> StopCriterion:
        """Returns `other` where it sets any limit, else this one."""
        return other if other.limits() else self

    def merged(self, other: StopCriterion) -> StopCriterion:
        """Returns this criterion with the limits of `other` laid on it."""
        limits: dict[str, Any] = {**self.limits(), **other.limits()}
        return StopCriterion(**limits)

    def reached(self, result: Mapping[str, Any]) -> str | None:
        """Returns which limit a result has reached, in words; None if none."""
        for name, limit in self.limits().items():
            value = result.get(name)
            if value is not None and value >= limit:  # a NaN return is never enough
                return f"{_WORDS[name]} {_number(value)}, limit {_number(limit)}"
        return None

    def describe(self) -> str:
        """Returns in words where a run ends."""
        words = [f"{_WORDS[name]} ≥ {_number(limit)}" for name, limit in self.limits().items()]
        return f"stops at {' or '.join(words)}" if words else "goes on until Ctrl-C, for no --stop-... limit was given"


#: The share of a limit that is shown at most before a result has reached it.
_NEARLY = 0.99


class Progress:
    """How far a run is towards its criterion.

    Args:
        criterion: What ends the run.
    """

    def __init__(self, criterion: StopCriterion) -> None:
        self._criterion = criterion
        self._first_return: float | None = None
        self._before: Mapping[str, Any] = {}
        self._now: Mapping[str, Any] = {}

    def update(self, result: Mapping[str, Any]) -> None:
        """Takes the next result."""
        value = result.get("episode_reward_mean")
        if self._first_return is None and value is not None and math.isfinite(value):
            self._first_return = value
        self._before = self._before or result
        self._now = result

    def fraction(self, env_steps: int | None = None) -> float | None:
        """Returns the nearest limit's share that is done, in [0, 1]; None where nothing is known.

        Args:
            env_steps: How many there are now, within an iteration; None goes by the last result.
        """
        shares = [self._share(name, limit) for name, limit in self._criterion.limits().items()]
        if env_steps is not None and self._criterion.timesteps_total:
            # What is sampled is not learned from yet: the run is at its end with a result, not before.
            shares.append(min(_NEARLY, env_steps / self._criterion.timesteps_total))
        known = [share for share in shares if share is not None]
        return min(1.0, max(0.0, *known, 0.0)) if known else None

    def eta_s(self) -> float | None:
        """Returns seconds until the first limit that time alone reaches; None if there is none, or no rate yet."""
        if not self._now:
            return None
        elapsed = self._now["time_total_s"] - self._before["time_total_s"]
        times = []
        for name, limit in self._criterion.limits().items():
            if name == "time_total_s":
                times.append(limit - self._now[name])
            elif name != "episode_reward_mean":
                done = self._now[name] - self._before[name]
                if done > 0:
                    times.append((limit - self._now[name]) * elapsed / done)
        return max(0.0, min(times)) if times else None

    def _share(self, name: str, limit: float) -> float | None:
        value = self._now.get(name)
        if value is None or not math.isfinite(value):
            return None
        start = self._first_return if name == "episode_reward_mean" else 0.0
        if start is None:
            return None
        return 1.0 if value >= limit else (value - start) / (limit - start)


_WORDS = {
    "episode_reward_mean": "mean return",
    "timesteps_total": "env steps",
    "training_iteration": "iteration",
    "time_total_s": "seconds",
}


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 10_000 else f"{value:,.2f}"
