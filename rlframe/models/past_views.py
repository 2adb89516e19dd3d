"""What built-in models with memory see of past steps: actions one-hot, and rewards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlframe.data.columns import ACTIONS, OBS, PREV_ACTIONS, PREV_REWARDS, REWARDS
from rlframe.data.view_requirements import ViewRequirement
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor
from rlframe.utils.errors import ConfigError

#: The actions and rewards of several steps before, for attention.
PREV_N_ACTIONS, PREV_N_REWARDS = "prev_n_actions", "prev_n_rewards"
OBS_WINDOW = "_obs_window"
"""The column that a model gets as `obs` which declares a view of other steps than the current one under that name."""


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


def move_obs_window(model: Any) -> None:
    """Gives a view of several or earlier steps that a model declares as `obs` a column of its own.

    Batches and `new_obs` go on with single observations, as postprocessing and other models read them; calls of the
    model put the column into the place of `obs`. The view has the space of one step, whatever the program says.

    Args:
        model: A `ModelV2`; its view requirements are changed.
    """
    view = model.view_requirements.get(OBS)
    if view is None or (not view.has_time_axis and view.shift == 0) or view.data_col not in (None, OBS):
        return
    model.view_requirements[OBS_WINDOW] = ViewRequirement(
        OBS, model.obs_space, view.shift, view.index, used_for_training=view.used_for_training
    )
    model.view_requirements[OBS] = ViewRequirement(space=model.obs_space)


def obs_window(model: Any, inputs: Any) -> Any:
    """Returns the steps that a model declared a view of as `obs`; `obs` itself where somebody has put them there.

    Raises:
        ConfigError: If the caller has single observations alone, as losses on `new_obs` have.
    """
    if OBS_WINDOW in inputs:
        return inputs[OBS_WINDOW]
    shape = getattr(inputs[OBS], "shape", ())
    if len(shape) > 1 + len(model.obs_space.shape or ()):
        return inputs[OBS]
    raise ConfigError(
        f"{type(model).__name__} declares a view of other steps as view_requirements['obs'], and was called with "
        f"observations of one step, of shape {tuple(shape)}; wanted a policy whose loss calls it on a batch's own rows "
        "(PPO, A2C, PG, IMPALA, MARWIL; not on new_obs, as DQN's and SAC's), or an environment that stacks the frames"
    )


def encode_steps(actions: Tensor, encoding: Sequence[int], steps: int = 1) -> Tensor:
    """Returns the actions of past steps as float rows; see `rlframe.models.action_encoding.encode_actions`.

    Args:
        actions: `[B, ...]`, or `[B, N, ...]` of N steps.
        encoding: Number of values of each part of an action, 0 for a number.
        steps: N.

    Returns:
        Float `[B, N · D]`.
    """
    columns = ops.reshape(actions, (-1, steps * len(encoding)))
    parts = [
        ops.one_hot(columns[:, index], size) if size else ops.to_float(columns[:, index : index + 1])
        for index, size in enumerate([*encoding] * steps)
    ]
    return parts[0] if len(parts) == 1 else ops.concat(parts, 1)
