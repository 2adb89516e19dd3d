"""The entropy that α aims at, where a program sets it in the model, as schedules for RLlib do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.data.sample_batch import SampleBatch
from rlframe.policy.parts import Component
from rlframe.utils.numpy import convert_to_numpy


class TargetEntropy(Component):
    """Has `policy.target_entropy`, which the loss reads, follow `policy.model.target_entropy`, which RLlib's loss read.

    Args:
        policy: A `SACPolicy` with its model; what the model begins with counts, too.
    """

    def __init__(self, policy: Any) -> None:
        self._policy = policy
        self._of_config = self._seen = _number(policy.target_entropy)

    def before_learning(self, samples: SampleBatch) -> None:
        """Takes the model's value, if that is another than before."""
        del samples
        value = _number(self._policy.model.target_entropy)
        if np.float32(value) != np.float32(self._seen):
            self._policy.target_entropy = self._seen = value

    def get_state(self) -> dict[str, Any]:
        """Returns the value where it is no longer that of the config."""
        value = _number(self._policy.target_entropy)
        return {} if value == self._of_config else {"value": value}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes the value, until the model's is set again."""
        self._policy.target_entropy = state.get("value", self._of_config)


def _number(value: Any) -> float:
    """Returns what a program has set as a number; copies of RLlib's loss leave the model's tensor in the policy."""
    return float(value.item() if hasattr(value, "item") else np.ravel(convert_to_numpy(value))[0])
