"""What a policy remembers while it acts: recurrent states, and columns of past steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import INFOS, OBS, STATE_IN_PREFIX, STATE_OUT_PREFIX
from rlframe.data.view_requirements import ViewRequirement
from rlframe.policy.recurrent_context import LABELS, comes_of_acting, views_after
from rlframe.policy.users_code import users_way


class PolicyMemory:
    """The part of a `Policy` that acts with memory; without any it is not asked."""

    def forward_with_memory(
        self: Any, obs: NDArray[Any], inputs: Mapping[str, NDArray[Any]], explore: bool = True
    ) -> tuple[NDArray[np.float32], NDArray[np.float32] | None, list[NDArray[Any]]]:
        """Returns what `forward` does and the new states [B, ...], given `state_in_i` and past columns as `inputs`."""
        made: tuple[NDArray[np.float32], NDArray[np.float32] | None, list[NDArray[Any]]]
        made = self.inference.built_in.run({OBS: obs, **inputs}, explore)
        return made

    def _values_with_memory(
        self: Any, batch: Mapping[str, Any], rows: NDArray[np.int64], next_obs: Any
    ) -> NDArray[np.float32]:
        """Does what `values_after` does with the memory that the policy had behind the rows."""
        inputs = views_after(self.acting_views(), batch, rows, next_obs)
        for index in range(self.num_state_tensors()):
            inputs[f"{STATE_IN_PREFIX}{index}"] = np.asarray(batch[f"{STATE_OUT_PREFIX}{index}"])[rows]
        _, values, _ = self.forward_with_memory(next_obs, inputs, False)
        return np.zeros(len(rows), np.float32) if values is None else values

    def acting_views(self: Any) -> dict[str, ViewRequirement]:
        """Returns the columns of past steps that acting needs, e.g. `prev_actions`, by name.

        What shows the outcome of a step, or later steps, is for learning, whether it says so or not. A user's own way
        of acting is told beside whose rows they are.
        """
        wanted = {
            name: view
            for name, view in self.view_requirements.items()
            if view.used_for_compute_actions and name not in (OBS, INFOS) and not name.startswith("state_")
        }
        told = LABELS if users_way(type(self)) is not None else ()
        return {
            name: view
            for name, view in wanted.items()
            if not comes_of_acting(name, view) and (view.data_col or name) not in told
        }

    def num_state_tensors(self: Any) -> int:
        """Returns the number of state arrays."""
        return len(self.get_initial_state())

    def get_initial_state(self: Any) -> list[NDArray[Any]]:
        """Returns the state arrays at the start of an episode, without batch dimension.

        Zeros for each `state_in_i` that the policy declares as a view of its `state_out_i`; otherwise none.
        """
        views = getattr(self, "view_requirements", {})  # a program's own policy may have none
        states: list[NDArray[Any]] = []
        while (view := views.get(f"{STATE_IN_PREFIX}{len(states)}")) is not None:
            out = views.get(view.data_col, view)
            space = out.space if out.space.shape else view.space  # either may be declared without one
            states.append(np.zeros(space.shape, space.dtype))
        return states
