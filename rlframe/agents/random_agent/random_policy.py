"""The policy that acts at random, wherever it acts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import EPS_ID, OBS
from rlframe.data.sample_batch import SampleBatch
from rlframe.models.numpy_dists import numpy_dist_for
from rlframe.policy.inference import Acted, Columns, Inference, Outputs, Wanted
from rlframe.policy.policy import Policy


class RandomInference(Inference):
    """Draws actions uniformly from their space, whether or not it explores."""

    def run(self, columns: Columns, explore: bool) -> Outputs:
        """Returns zeros `[B, K]`."""
        del explore
        return np.zeros((len(columns[OBS]), self.policy.num_outputs), np.float32), None, []

    def act(self, columns: Columns, explore: bool, timestep: int | None, wanted: Wanted) -> Acted:
        """Returns actions, and what the sampler wants beside them."""
        del explore
        return super().act(columns, True, timestep, wanted)


class RandomAgentPolicy(Policy):
    """Acts at random by the seed: also with `explore=False`, and with any exploration in the config."""

    defaults_from = "rlframe.agents.random_agent.random_agent:DEFAULT_CONFIG"
    train_columns = (EPS_ID,)

    def __init__(self, observation_space: gym.Space[Any], action_space: gym.Space[Any], config: dict[str, Any]) -> None:
        super().__init__(observation_space, action_space, config)
        self.numpy_dist, self.num_outputs = numpy_dist_for(self.action_space, None)
        self.exploration = self._create_exploration()

    def exploration_options(self) -> Mapping[str, Any]:
        """Returns the config of uniform draws."""
        return {"type": "Random"}

    def _built_in_inference(self) -> Inference:
        return RandomInference(self)

    def learn_on_batch(self, samples: SampleBatch) -> dict[str, Any]:
        """Learns nothing."""
        del samples
        return {"learner_stats": {}}

    def get_weights(self) -> dict[str, NDArray[Any]]:
        """Returns no weights."""
        return {}
