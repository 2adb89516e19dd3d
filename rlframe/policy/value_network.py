"""V of a single step, as postprocessing functions of users ask for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.columns import OBS
from rlframe.policy.users_code import method


def value_of_step(policy: Any, **input_dict: Any) -> float:
    """Returns V of one row, 0 without `use_gae`; its columns `[1, ...]` are those that the model acts on.

    `SampleBatch.get_single_step_input_dict(policy.view_requirements, "last")` gives them. It is `_value` of policies
    with a value function, for users' postprocessing; `values_after(batch, rows)` takes many trajectories in one call.
    """
    if not policy.config.get("use_gae", True):
        return 0.0
    columns = {name: np.asarray(column) for name, column in input_dict.items()}
    obs = columns.pop(OBS)
    if not policy.needs_memory():
        return float(np.asarray(method(policy, "values")(obs)).reshape(-1)[0])
    _, values, _ = policy.forward_with_memory(obs, columns, False)
    return 0.0 if values is None else float(np.asarray(values).reshape(-1)[0])


value_of_step.is_values_after = True  # type: ignore[attr-defined]  # a marker: the same number, one row at a time


class ValueNetworkMixin:
    """Gives a policy that is made of functions `_value(**input_dict)`; see `value_of_step`."""

    def __init__(self, obs_space: Any = None, action_space: Any = None, config: Any = None) -> None:
        """Takes the arguments of RLlib's mixin; there is nothing to set up."""

    _value = value_of_step
