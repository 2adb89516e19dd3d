"""Ids of the old gym that Gymnasium has no more: `Pendulum-v0`, `LunarLander-v2`, `HalfCheetah-v2`, ..."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import gymnasium.error
from gymnasium.envs import registration

#: MuJoCo's fourth versions have the dynamics, observations and rewards of the second and third; the fifth differ.
_MUJOCO_VERSION = 4
#: Names that RLlib's modules registered, by the class that stands for each.
OF_RLLIB = {"RecSim-v1": "rlframe.examples.env.recommender_systems.InterestEvolutionRecSimEnv"}
_DETERMINISTIC = re.compile(r"(\w+)Deterministic-v([04])")


def is_stub(spec: registration.EnvSpec | None) -> bool:
    """Returns whether an id of MuJoCo's is in Gymnasium's registry, but only to say that it is gone."""
    made_by: Any = None if spec is None else spec.entry_point
    return getattr(made_by, "__name__", "") == "_raise_mujoco_py_error"


def successor(env_id: str) -> tuple[registration.EnvSpec, str] | None:
    """Returns what stands for an id that is gone, and a sentence about it; None if nothing does.

    The next version of the same environment; of MuJoCo's the fourth; for a game's `Deterministic` version the one
    without skipped frames, with every fourth.
    """
    game = _DETERMINISTIC.fullmatch(env_id)
    if game is not None:
        every = registration.registry.get(f"{game[1]}NoFrameskip-v{game[2]}")
        if every is None:
            return None
        spec = dataclasses.replace(every, id=env_id, kwargs={**every.kwargs, "frameskip": 4})
        return spec, f"{env_id} is made of {every.id}: every fourth frame is shown"
    try:
        namespace, name, version = registration.parse_env_id(env_id)
    except gymnasium.error.Error:
        return None
    if version is None:
        return None
    same = [spec for spec in registration.registry.values() if (spec.namespace, spec.name) == (namespace, name)]
    later = {spec.version or 0: spec for spec in same if not is_stub(spec)}
    later = {number: spec for number, spec in later.items() if number > version}
    if not later:
        return None
    spec = later[min(later)]
    if "mujoco" in str(spec.entry_point):
        spec = later.get(_MUJOCO_VERSION, spec)
    return spec, f"{env_id} is not in Gymnasium any more; {spec.id} is used, which may differ a little"
