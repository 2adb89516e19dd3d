"""Eight tasks of DeepMind's Control Suite, by the names that RLlib's examples had for them."""

from __future__ import annotations

from functools import partial
from typing import Any

from rlframe.env.wrappers.dm_control_wrapper import DMCEnv


def _task(
    domain: str,
    task: str,
    from_pixels: bool = True,
    height: int = 64,
    width: int = 64,
    frame_skip: int = 2,
    channels_first: bool = True,
) -> Any:
    """Returns a task; see `DMCEnv`."""
    options: dict[str, Any] = {
        "height": height,
        "width": width,
        "frame_skip": frame_skip,
        "channels_first": channels_first,
    }
    return DMCEnv(domain, task, from_pixels=from_pixels, **options)


acrobot_swingup = partial(_task, "acrobot", "swingup")
walker_walk = partial(_task, "walker", "walk")
hopper_hop = partial(_task, "hopper", "hop")
hopper_stand = partial(_task, "hopper", "stand")
cheetah_run = partial(_task, "cheetah", "run")
walker_run = partial(_task, "walker", "run")
pendulum_swingup = partial(_task, "pendulum", "swingup")
cartpole_swingup = partial(_task, "cartpole", "swingup")
humanoid_walk = partial(_task, "humanoid", "walk")
