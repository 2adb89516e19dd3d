"""MuJoCo's robots with tasks that can be set, for meta-learning (Finn et al. 2017); they need the extra `mujoco`."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlframe.env.apis.task_settable_env import TaskSettableEnv

Step = tuple[NDArray[Any], float, bool, bool, dict[str, Any]]


class _RobotWithTasks(gym.Wrapper[Any, Any, Any, Any], TaskSettableEnv):
    """A robot of Gymnasium's without its rewards, its ends and its time limit."""

    env_id: ClassVar[str]
    options: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        super().__init__(gym.make(self.env_id, max_episode_steps=-1, disable_env_checker=True, **self.options))

    def step(self, action: Any) -> Step:
        """Steps the robot, and pays the sum of what the infos tell."""
        obs, _, _, _, info = super().step(action)
        parts = self.parts(np.asarray(action), info)
        return obs, sum(parts.values()), False, False, {**info, **parts}

    def parts(self, action: NDArray[Any], info: dict[str, Any]) -> dict[str, float]:
        """Returns the parts of a step's reward."""
        raise NotImplementedError


class HalfCheetahRandDirecEnv(_RobotWithTasks):
    """HalfCheetah that is to run forwards (task 1.0) or backwards (-1.0).

    A step pays the velocity that way, less 0.05 of squared actions.

    Args:
        goal_direction: The first task; None, and a trainer's config, are 1.0.
    """

    env_id = "HalfCheetah-v5"

    def __init__(self, goal_direction: Any = None) -> None:
        super().__init__()
        self.set_task(goal_direction if isinstance(goal_direction, float | int) and goal_direction else 1.0)

    def sample_tasks(self, n_tasks: int) -> Any:
        """Returns directions `[n_tasks]`."""
        return self.np_random.choice((-1.0, 1.0), (n_tasks,))

    def set_task(self, task: Any) -> None:
        """Sets the direction."""
        self.goal_direction = task

    def get_task(self) -> Any:
        """Returns the direction."""
        return self.goal_direction

    def parts(self, action: NDArray[Any], info: dict[str, Any]) -> dict[str, float]:
        """Returns the parts of a step's reward."""
        run = float(self.goal_direction * info["x_velocity"])
        return {"reward_run": run, "reward_ctrl": -0.05 * float(np.square(action).sum())}


class AntRandGoalEnv(_RobotWithTasks):
    """Ant that is to reach a place within 3 m of the origin, its task `[2]`.

    A step pays minus the distances along both axes, 0.1 of squared actions, and 0.0005 of squared contact forces, which
    are cut at ±1. Observations are positions, velocities and contact forces.

    Args:
        config: Not used.
    """

    env_id = "Ant-v5"
    options: ClassVar[dict[str, Any]] = {"exclude_current_positions_from_observation": False}

    def __init__(self, config: Any = None) -> None:
        del config
        super().__init__()
        self.set_task(self.sample_tasks(1)[0])

    def sample_tasks(self, n_tasks: int) -> Any:
        """Returns places `[n_tasks, 2]`, uniform on the disc."""
        angle = self.np_random.random(n_tasks) * 2 * np.pi
        radius = 3 * self.np_random.random(n_tasks) ** 0.5
        return np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=-1)

    def set_task(self, task: Any) -> None:
        """Sets the place."""
        self.goal_pos = task

    def get_task(self) -> Any:
        """Returns the place."""
        return self.goal_pos

    def parts(self, action: NDArray[Any], info: dict[str, Any]) -> dict[str, float]:
        """Returns the parts of a step's reward."""
        data: Any = self.unwrapped.data  # type: ignore[attr-defined]
        return {
            "reward_forward": -float(np.abs(data.body("torso").xpos[:2] - self.goal_pos).sum()),
            "reward_ctrl": -0.1 * float(np.square(action).sum()),
            "reward_contact": -0.5e-3 * float(np.square(np.clip(data.cfrc_ext, -1, 1)).sum()),
            "reward_survive": 0.0,
        }
