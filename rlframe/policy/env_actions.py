"""The way of actions between a policy's space and the environment's."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from rlframe.policy.policy_making import corners
from rlframe.utils.spaces.space_maps import clip_action, map_space, normalize_action, unsquash_action
from rlframe.utils.spaces.space_utils import flatten_to_single_ndarray


class EnvActions:
    """The part of a `Policy` that says what its actions are to an environment, and the other way round."""

    config: Any
    action_space: gym.Space[Any]
    action_space_struct: Any
    _counts_from_elsewhere: bool
    _acts_in_numbers: bool
    dist_type: str | None

    def to_env_actions(self, actions: Any, *, unsquash: bool | None = None, clip: bool | None = None) -> Any:
        """Returns actions [B, ...] of the policy's space as actions of the environment's space.

        `normalize_actions` maps [-1, 1] to the bounds and clips; without it `clip_actions` clips.
        """
        if unsquash is None:
            unsquash = bool(self.config.normalize_actions)
        if clip is None:
            clip = bool(self.config.clip_actions)
        if self._acts_in_points:
            actions = np.asarray(actions).argmax(-1)
        if self._counts_from_elsewhere:
            actions = map_space(_from_start, actions, self.action_space_struct)
        if self._acts_in_numbers:
            actions = map_space(_as_number, actions, self.action_space_struct)
        if unsquash:
            return unsquash_action(actions, self.action_space_struct)
        return clip_action(actions, self.action_space_struct) if clip else actions

    def only_unsquashes(self) -> bool:
        """Returns whether all that `to_env_actions` may do, by class and space, is what `normalize_actions` says."""
        elsewhere = self._acts_in_points or self._counts_from_elsewhere or self._acts_in_numbers
        return type(self).to_env_actions is EnvActions.to_env_actions and not elsewhere

    def from_env_action(self, action: Any) -> Any:
        """Returns one action of the environment's space as the policy's space has it: an array; undoes squashing."""
        if self._counts_from_elsewhere:
            action = map_space(to_zero, action, self.action_space_struct)
        if self.config.normalize_actions:
            action = normalize_action(action, self.action_space_struct)
        if self._acts_in_points:
            return corners(np.asarray(action), self.action_space)
        nested = self.action_space_struct is not self.action_space
        return flatten_to_single_ndarray(action) if nested else np.asarray(action)

    @property
    def _acts_in_points(self) -> bool:
        """Whether the policy's actions are points on the simplex, and the environment gets numbers."""
        return self.dist_type == "relaxed_one_hot" and isinstance(self.action_space, gym.spaces.Discrete)


def first_choice(space: Any) -> Any:
    """Returns the number from which a space counts choices; policies count from 0."""
    counted = isinstance(space, (gym.spaces.Discrete, gym.spaces.MultiDiscrete))
    return getattr(space, "start", 0) if counted else 0


def _from_start(action: Any, space: Any) -> Any:
    start = first_choice(space)
    return action + start if np.any(start) else action


def _as_number(action: Any, space: Any) -> Any:
    """Returns vectors of one `[B, 1]` as numbers `[B]` where the space, a Box, has no dimension."""
    vector = isinstance(space, gym.spaces.Box) and not space.shape and np.ndim(action) == 2
    return np.asarray(action)[:, 0] if vector else action


def to_zero(action: Any, space: Any) -> Any:
    """Returns choices counted from 0, of those that count from where their space does."""
    start = first_choice(space)
    return np.asarray(action) - start if np.any(start) else action
