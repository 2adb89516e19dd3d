"""Tuned configs by algorithm and environment, each with what it reached when it was measured here."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib import resources
from typing import Any

from rlframe.config.nested_dict import copy_containers
from rlframe.utils.errors import ConfigError


@dataclass(frozen=True)
class Preset:
    """One tuned config.

    Attributes:
        algorithm: Name of the algorithm.
        env: Name of the environment.
        config: What differs from the algorithm's defaults.
        target: Mean return that was asked for, in reward units of the environment.
        env_steps: Env steps to that mean, one number for each of the seeds 0, 1, 2, …
        returns: Mean returns of 100 episodes without exploration after these steps, where nobody looked earlier; one
            number for each seed, or none.
    """

    algorithm: str
    env: str
    config: dict[str, Any]
    target: float
    env_steps: tuple[int, ...]
    returns: tuple[float, ...] = ()

    def describe(self) -> str:
        """Returns what it reached, in words."""
        if self.returns:
            reached = ", ".join(f"{mean:g}" for mean in self.returns)
            return (
                f"mean returns {reached} after {self.env_steps[0]:,} env steps ({len(self.returns)} seeds); "
                f"{self.target:g} was asked for"
            )
        steps = ", ".join(f"{steps:,}" for steps in self.env_steps)
        return f"mean return {self.target:g} after {steps} env steps ({len(self.env_steps)} seeds)"


@functools.cache
def presets() -> tuple[Preset, ...]:
    """Returns all presets, in the order of the file `presets.yaml`."""
    import yaml

    text = resources.files("rlframe.agents").joinpath("presets.yaml").read_text(encoding="utf-8")
    entries: list[dict[str, Any]] = yaml.safe_load(text)
    for entry in entries:
        entry["env_steps"], entry["returns"] = tuple(entry["env_steps"]), tuple(entry.get("returns", ()))
    return tuple(Preset(**entry) for entry in entries)


def find_preset(algorithm: str, env: str) -> Preset | None:
    """Returns the preset of an algorithm for an environment, None if there is none."""
    return next((preset for preset in presets() if (preset.algorithm, preset.env) == (algorithm, env)), None)


def get_preset(algorithm: str, env: str) -> dict[str, Any]:
    """Returns the tuned config of an algorithm for an environment, a dict of the caller's own.

    Args:
        algorithm: A name such as "PPO".
        env: A name such as "CartPole-v1".

    Raises:
        ConfigError: If there is none, with those that there are: the algorithm's and the environment's first.
    """
    preset = find_preset(algorithm, env)
    if preset is not None:
        config: dict[str, Any] = copy_containers(preset.config)
        return config
    known = sorted(presets(), key=lambda each: (each.algorithm != algorithm, each.env != env, each.algorithm, each.env))
    listed = ", ".join(f"{each.algorithm} on {each.env}" for each in known)
    raise ConfigError(f"there is no preset for {algorithm} on {env}; there are {listed}")
