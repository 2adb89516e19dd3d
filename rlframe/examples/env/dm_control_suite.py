"""Eight tasks of DeepMind's Control Suite, by the names that RLlib's examples had for them."""

from __future__ import annotations

from collections.abc import Callable

from rlframe.env.wrappers.dm_control_wrapper import DMCEnv


def _task(domain: str, task: str) -> Callable[..., DMCEnv]:
    """Returns a function that makes a task; see `DMCEnv`."""

    def make(
        from_pixels: bool = True,
        height: int = 64,
        width: int = 64,
        frame_skip: int = 2,
        channels_first: bool = True,
    ) -> DMCEnv:
        """Returns the task."""
        return DMCEnv(
            domain, task, from_pixels=from_pixels, height=height, width=width, frame_skip=frame_skip,
            channels_first=channels_first,
        )  # fmt: skip

    return make


acrobot_swingup = _task("acrobot", "swingup")
walker_walk = _task("walker", "walk")
hopper_hop = _task("hopper", "hop")
hopper_stand = _task("hopper", "stand")
cheetah_run = _task("cheetah", "run")
walker_run = _task("walker", "run")
pendulum_swingup = _task("pendulum", "swingup")
cartpole_swingup = _task("cartpole", "swingup")
humanoid_walk = _task("humanoid", "walk")
