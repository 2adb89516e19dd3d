"""A penalty on means of Gaussians beyond the action bounds: a term of losses."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.losses.policy_gradients import action_bound_penalty
from rlframe.models.dist_plan import is_gaussian

#: Bound of actions without one: no mean comes there.
_FAR = 1e30


class ActionBoundPenalty:
    """Mixin of policies whose losses have the penalty on means beyond the action bounds; needs `action_bound_coeff`."""

    @cached_property
    def action_bounds(self: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]] | None:
        """Bounds `[A]` that Gaussian actions are clipped to, in the policy's space; None where there are none."""
        users_own = self.numpy_dist is None or self._action_distribution_fn is not None
        built_in = not users_own and is_gaussian(self.action_space, self.config["model"])
        if not (self.config["action_bound_coeff"] and built_in):
            return None
        space: Any = self.action_space
        clipped = self.config["normalize_actions"] or self.config["clip_actions"]
        bounded = np.isfinite(space.low) & np.isfinite(space.high) & (space.low < space.high) & clipped
        if not bounded.any():
            return None
        low, high = (-1.0, 1.0) if self.config["normalize_actions"] else (space.low, space.high)
        return (
            np.where(bounded, low, -_FAR).astype(np.float32),
            np.where(bounded, high, _FAR).astype(np.float32),
        )

    def action_bound_loss(self, dist: Any, mean: Callable[[Any], Any]) -> Any:
        """Returns how far means lie beyond the action bounds, a scalar; 0 where actions have none.

        Args:
            dist: The distributions of a batch.
            mean: What takes the mean over the rows that count; see `valid_mean`.
        """
        bounds = self.action_bounds
        return 0.0 if bounds is None else mean(action_bound_penalty(dist.deterministic_sample(), *bounds))

    def action_bound_stats(self, bound_loss: Any) -> dict[str, Any]:
        """Returns the report of `action_bound_loss`, nothing where actions have no bounds."""
        return {} if self.action_bounds is None else {"action_bound_loss": bound_loss}
