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
    """How far the means of a policy's actions lie beyond the action bounds.

    Args:
        policy: A policy whose config has `action_bound_coeff`.
    """

    def __init__(self, policy: Any) -> None:
        self._policy = policy

    @cached_property
    def bounds(self) -> tuple[NDArray[np.float32], NDArray[np.float32]] | None:
        """Bounds `[A]` that Gaussian actions are clipped to, in the policy's space; None where there are none."""
        policy, config = self._policy, self._policy.config
        users_own = policy.numpy_dist is None or policy._action_distribution_fn is not None
        built_in = not users_own and is_gaussian(policy.action_space, config["model"])
        if not (config["action_bound_coeff"] and built_in):
            return None
        space: Any = policy.action_space
        clipped = config["normalize_actions"] or config["clip_actions"]
        bounded = np.isfinite(space.low) & np.isfinite(space.high) & (space.low < space.high) & clipped
        if not bounded.any():
            return None
        low, high = (-1.0, 1.0) if config["normalize_actions"] else (space.low, space.high)
        return (
            np.where(bounded, low, -_FAR).astype(np.float32),
            np.where(bounded, high, _FAR).astype(np.float32),
        )

    def loss(self, dist: Any, mean: Callable[[Any], Any]) -> Any:
        """Returns how far means lie beyond the action bounds, a scalar; 0 where actions have none.

        Args:
            dist: The distributions of a batch.
            mean: What takes the mean over the rows that count; see `valid_mean`.
        """
        return 0.0 if self.bounds is None else mean(action_bound_penalty(dist.deterministic_sample(), *self.bounds))

    def stats(self, bound_loss: Any) -> dict[str, Any]:
        """Returns the report of `loss`, nothing where actions have no bounds."""
        return {} if self.bounds is None else {"action_bound_loss": bound_loss}
