"""V of a single step, as postprocessing functions of users ask for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.columns import OBS, PREV_ACTIONS, PREV_REWARDS, STATE_IN_PREFIX
from rlframe.policy.users_code import method


def value_of_step(policy: Any, *row: Any, **input_dict: Any) -> float:
    """Returns V of one row, 0 without `use_gae`; its columns `[1, ...]` are those that the model acts on.

    `SampleBatch.get_single_step_input_dict(policy.view_requirements, "last")` gives them. It is `_value` of policies
    with a value function, for users' postprocessing; `values_after(batch, rows)` takes many trajectories in one call.

    Args:
        policy: Whose value function it is.
        row: The row as programs of RLlib 0.8 and 1.0 gave it: observation, action and reward before it, states `[1,
            ...]`; the first alone will do.
        input_dict: The row's columns, by name.
    """
    if row:
        input_dict = _columns_of(*row)
    if not policy.config.get("use_gae", True):
        return 0.0
    columns = {name: np.asarray(column) for name, column in input_dict.items()}
    obs = columns.pop(OBS)
    with policy._policy_lock:
        if not policy.needs_memory():
            return float(np.asarray(method(policy, "values")(obs)).reshape(-1)[0])
        _, values, _ = policy.forward_with_memory(obs, columns, False)
    return 0.0 if values is None else float(np.asarray(values).reshape(-1)[0])


def _columns_of(obs: Any, prev_action: Any = None, prev_reward: Any = None, *states: Any) -> dict[str, Any]:
    """Returns the columns `[1, ...]` of a row that was given in its order."""
    before = {PREV_ACTIONS: prev_action, PREV_REWARDS: prev_reward}
    columns = {name: np.asarray(value)[None] for name, value in before.items() if value is not None}
    return {OBS: np.asarray(obs)[None], **columns, **{f"{STATE_IN_PREFIX}{i}": state for i, state in enumerate(states)}}


value_of_step.is_values_after = True  # type: ignore[attr-defined]  # a marker: the same number, one row at a time


class ValueNetworkMixin:
    """Gives a policy that is made of functions `_value(**input_dict)`; see `value_of_step`."""

    def __init__(self, obs_space: Any = None, action_space: Any = None, config: Any = None) -> None:
        """Takes the arguments of RLlib's mixin; there is nothing to set up."""

    _value = value_of_step
