"""Distributions and a policy for explorations to act with."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from rlframe.models.bounded_distributions import Deterministic
from rlframe.models.distributions import Categorical
from rlframe.utils.seeding import make_rng

PENDULUM = Box(-2.0, 2.0, (1,), np.float32)
THREE = Discrete(3)


def rng(*path: int) -> np.random.Generator:
    return make_rng(0, *path)


def values(*rows: list[float], seed: int = 7) -> Categorical:
    return Categorical(np.array(rows, np.float32), rng(seed))


def means(*rows: list[float]) -> Deterministic:
    return Deterministic(np.array(rows, np.float32), rng(7))


def choose(exploration: Any, distribution: Any, timestep: int = 0, explore: bool = True) -> tuple[Any, Any]:
    return exploration.get_exploration_action(action_distribution=distribution, timestep=timestep, explore=explore)


class LinearPolicy:
    """Q = obs · W + b; obeys the contract between policies and explorations."""

    def __init__(self, exploration: Any, outputs: int = 3) -> None:
        self.exploration = exploration
        self.global_timestep = 0
        self.weights = {
            "q.weight": rng(1).standard_normal((2, outputs)).astype(np.float32),
            "q.bias": np.zeros(outputs, np.float32),
            "layer_norm.weight": np.ones(2, np.float32),
            "steps": np.array(3, np.int64),
        }
        self.keeps_inputs = True
        exploration.policy = self

    def get_weights(self) -> dict[str, Any]:
        self.exploration.restore_weights()
        return {name: array.copy() for name, array in self.weights.items()}

    def set_weights(self, weights: dict[str, Any]) -> None:
        self.exploration.restore_weights()
        self.weights = {name: np.array(array) for name, array in weights.items()}

    def forward(self, obs: Any) -> tuple[Any, None]:
        return obs @ self.weights["q.weight"] + self.weights["q.bias"], None

    def compute_actions_from_input_dict(self, batch: Any, explore: bool) -> tuple[Any, list[Any], dict[str, Any]]:
        self.exploration.before_compute_actions(timestep=self.global_timestep, explore=explore)
        inputs, _ = self.forward(batch["obs"])
        self.global_timestep += len(inputs)
        return inputs.argmax(1), [], {"action_dist_inputs": inputs} if self.keeps_inputs else {}
