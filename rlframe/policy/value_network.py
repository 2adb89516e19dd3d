"""V of a single step, as postprocessing functions of users ask for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.columns import OBS
from rlframe.policy.users_code import method


class ValueNetworkMixin:
    """Gives a policy `_value(**input_dict)`: V where a trajectory was cut off.

    Functions here ask for `values_after(batch, rows)`, which takes many trajectories in one call.
    """

    def __init__(self, obs_space: Any = None, action_space: Any = None, config: Any = None) -> None:
        """Takes the arguments of RLlib's mixin; there is nothing to set up."""

    def _value(self: Any, **input_dict: Any) -> float:
        """Returns V of one row, 0 without `use_gae`; its columns `[1, ...]` are those that the model acts on.

        `SampleBatch.get_single_step_input_dict(policy.view_requirements, "last")` gives them.
        """
        if not self.config.get("use_gae", True):
            return 0.0
        columns = {name: np.asarray(column) for name, column in input_dict.items()}
        obs = columns.pop(OBS)
        if not self.needs_memory():
            return float(np.asarray(method(self, "values")(obs)).reshape(-1)[0])
        _, values, _ = self.forward_with_memory(obs, columns, False)
        return 0.0 if values is None else float(np.asarray(values).reshape(-1)[0])

    _value.is_values_after = True  # type: ignore[attr-defined]  # a marker: the same number, one row at a time
