"""A policy that acts at random."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tree
from numpy.typing import NDArray

from rlframe.data.sample_batch import SampleBatch
from rlframe.policy.policy import Policy


class RandomPolicy(Policy):
    """Draws actions from their space; learns nothing. The key `ignore_action_bounds` is not read."""

    def __init__(self, observation_space: Any, action_space: Any, config: dict[str, Any]) -> None:
        super().__init__(observation_space, action_space, config)
        self.action_space.seed(int(self._action_rng.integers(2**31)))

    def compute_actions(
        self, obs_batch: Any, state_batches: Any = None, *args: Any, **kwargs: Any
    ) -> tuple[Any, list[Any], dict[str, Any]]:
        """Returns an action for each observation."""
        drawn = [self.action_space.sample() for _ in range(len(tree.flatten(obs_batch)[0]))]
        return tree.map_structure(lambda *parts: np.stack(parts), *drawn), [], {}

    def compute_log_likelihoods(self, actions: Any, obs_batch: Any, *args: Any, **kwargs: Any) -> NDArray[np.float32]:
        """Returns zeros [B]: the policy does not say how likely it acts."""
        return np.zeros(len(tree.flatten(obs_batch)[0]), np.float32)

    def learn_on_batch(self, samples: SampleBatch) -> dict[str, Any]:
        """Learns nothing."""
        return {}

    def get_weights(self) -> dict[str, Any]:
        """Returns no weights."""
        return {}

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Takes no weights."""
