"""Acting on Q-values in NumPy: trunk, dueling heads, atoms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.models.actor import ChainActor, Weights, bind_chain

FloatArray = NDArray[np.float32]


class QActor:
    """Maps observations to Q-values with NumPy alone; agrees with `DQNTorchModel`.

    Args:
        spec: `{"trunk": chain spec, "advantage": layers, "state_value": layers or None, "num_atoms": Z, "v_min": x,
            "v_max": x}`.
        weights: Float32 arrays by name, possibly views of live memory.
        rng: Generator for noisy layers; None switches their noise off.
    """

    def __init__(self, spec: Mapping[str, Any], weights: Weights, rng: np.random.Generator | None = None) -> None:
        self._trunk = ChainActor(spec["trunk"], weights).forward
        self._advantage = bind_chain(spec["advantage"], weights, rng)
        value = spec["state_value"]
        self._state_value = None if value is None else bind_chain(value, weights, rng)
        self._atoms = int(spec["num_atoms"])
        self._support = np.linspace(spec["v_min"], spec["v_max"], self._atoms, dtype=np.float32)
        self.mean = self if rng is None else QActor(spec, weights)

    def forward(self, obs: NDArray[Any]) -> FloatArray:
        """Returns Q-values [B, A] for observations [B, D]."""
        features = self._trunk(obs)
        scores = features
        for step in self._advantage:
            scores = step(scores)
        if self._atoms > 1:
            return self._expectation(features, scores)
        if self._state_value is None:
            return scores
        value = features
        for step in self._state_value:
            value = step(value)
        scores -= scores.mean(axis=1, keepdims=True)
        scores += value
        return scores

    def _expectation(self, features: FloatArray, scores: FloatArray) -> FloatArray:
        logits = scores.reshape(len(scores), -1, self._atoms)
        if self._state_value is not None:
            value = features
            for step in self._state_value:
                value = step(value)
            logits = logits - logits.mean(axis=1, keepdims=True) + value[:, None, :]
        weights = np.exp(logits - logits.max(axis=2, keepdims=True))
        weights /= weights.sum(axis=2, keepdims=True)
        result: FloatArray = weights @ self._support
        return result
