"""View requirements of built-in models with memory: what they see of past steps."""

from __future__ import annotations

from typing import Any

from rlframe.data.columns import ACTIONS, PREV_ACTIONS, PREV_REWARDS, REWARDS
from rlframe.data.view_requirements import ViewRequirement

#: The actions and rewards of several steps before, for attention.
PREV_N_ACTIONS, PREV_N_REWARDS = "prev_n_actions", "prev_n_rewards"


def previous_step_views(use_action: bool, use_reward: bool, action_space: Any) -> dict[str, ViewRequirement]:
    """Returns the view requirements of a model that sees the action and the reward of the step before."""
    views = {}
    if use_action:
        views[PREV_ACTIONS] = ViewRequirement(ACTIONS, space=action_space, shift=-1)
    if use_reward:
        views[PREV_REWARDS] = ViewRequirement(REWARDS, shift=-1)
    return views


def previous_steps_views(actions: int, rewards: int, action_space: Any) -> dict[str, ViewRequirement]:
    """Returns the view requirements of a model that sees the last `actions` actions and `rewards` rewards."""
    views = {}
    if actions:
        views[PREV_N_ACTIONS] = ViewRequirement(ACTIONS, space=action_space, shift=f"-{actions}:-1")
    if rewards:
        views[PREV_N_REWARDS] = ViewRequirement(REWARDS, shift=f"-{rewards}:-1")
    return views
