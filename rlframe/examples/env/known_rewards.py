"""Environments that say what observations are worth, as algorithms with learned models of the dynamics ask: MBMPO."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv, PendulumEnv
from numpy.typing import NDArray

Rows = NDArray[Any]


class _WithoutOptions:
    """An environment that is made as it is, whatever the config. No time limit.

    Args:
        config: Not used.
    """

    def __init__(self, config: Any = None) -> None:
        del config
        super().__init__()


class CartPoleWrapper(_WithoutOptions, CartPoleEnv):
    """CartPole, whose steps are worth 1 while cart and pole are within their bounds."""

    def reward(self, obs: Rows, action: Rows, obs_next: Rows) -> Rows:
        """Returns rewards `[B]` of rows `[B, ...]`."""
        del obs, action
        within = np.abs(obs_next[:, 0]) <= self.x_threshold
        return np.asarray(within & (np.abs(obs_next[:, 2]) <= self.theta_threshold_radians), np.float32)


class PendulumWrapper(_WithoutOptions, PendulumEnv):
    """Pendulum, whose rewards are read off observations and actions."""

    def reward(self, obs: Rows, action: Rows, obs_next: Rows) -> Rows:
        """Returns rewards `[B]` of rows `[B, ...]`."""
        del obs_next
        angle, speed = np.arctan2(obs[:, 1], obs[:, 0]), obs[:, 2]
        torque = np.clip(action[:, 0], -self.max_torque, self.max_torque)
        return np.asarray(-(angle**2 + 0.1 * speed**2 + 0.001 * torque**2))

    @staticmethod
    def angle_normalize(x: Any) -> Any:
        """Returns angles (rad) within ±pi."""
        return (x + np.pi) % (2 * np.pi) - np.pi


class _OfMuJoCo(gym.Wrapper[Any, Any, Any, Any]):
    """A robot of Gymnasium's; its reward is read off an observation by the forward velocity in it."""

    env_id: str
    #: Where the forward velocity is.
    velocity: int
    bonus, cost = 0.0, 0.0

    def __init__(self, config: Any = None) -> None:
        del config
        super().__init__(gym.make(self.env_id))

    def reward(self, obs: Rows, action: Rows, obs_next: Rows) -> Rows:
        """Returns rewards, within ±1000, `[B]` of rows `[B, ...]`."""
        del obs
        effort = self.cost * np.square(action).sum(-1)
        return np.asarray(np.clip(obs_next[..., self.velocity] + self.bonus - effort, -1000.0, 1000.0))


class HalfCheetahWrapper(_OfMuJoCo):
    """HalfCheetah; needs `pip install 'gymnasium[mujoco]'`."""

    env_id, velocity, cost = "HalfCheetah-v5", 8, 0.1


class HopperWrapper(_OfMuJoCo):
    """Hopper; needs `pip install 'gymnasium[mujoco]'`. In a model its episodes do not end where it falls."""

    env_id, velocity, bonus, cost = "Hopper-v5", 5, 1.0, 1e-3


def half_cheetah_of_data(config: Any = None) -> gym.Env[Any, Any]:
    """Returns the robot of RLlib's `d4rl_env.halfcheetah_*`; recorded steps of it are Minari's (`mujoco/...`)."""
    del config
    return gym.make("HalfCheetah-v5")


def hopper_of_data(config: Any = None) -> gym.Env[Any, Any]:
    """Returns the robot of RLlib's `d4rl_env.hopper_*`; recorded steps of it are Minari's (`mujoco/...`)."""
    del config
    return gym.make("Hopper-v5")
