"""ES and ARS: what two searches make of episodes that were played with noise on the weights, in NumPy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlframe.agents.families.perturbed_weights import PerturbedPolicy, Vector
from rlframe.policy.parts import Component


class ESPolicy(PerturbedPolicy):
    """Follows the gradient that ranks of returns estimate, by Adam.

        g = (1 / N) Σ_i rank_i · sign_i · ε_i,    θ ← Adam(θ, l2_coeff · θ − g)

    Source: Salimans et al. 2017, "Evolution Strategies as a Scalable Alternative to Reinforcement Learning",
    algorithm 1; ranks: Wierstra et al. 2014, section 3.1.
    """

    defaults_from = "rlframe.agents.es.es:DEFAULT_CONFIG"

    def __init__(self, observation_space: gym.Space[Any], action_space: gym.Space[Any], config: dict[str, Any]) -> None:
        super().__init__(observation_space, action_space, config)
        self.components["adam"] = self._adam = _Adam(len(self.get_flat_weights()))

    def step_of(
        self, pairs: NDArray[np.int64], signs: NDArray[np.int64], returns: NDArray[np.float64]
    ) -> tuple[Vector, dict[str, float]]:
        """Returns Adam's step; see the class."""
        ranked = centered_ranks(returns) * signs
        known, inverse = np.unique(pairs, return_inverse=True)
        by_pair = np.bincount(inverse, ranked, len(known)) / max(len(returns), 1)
        gradient = self.weighted_noise(known.tolist(), by_pair.tolist())
        step = self._adam.step(
            self.config["l2_coeff"] * self.get_flat_weights() - gradient, float(self.config["stepsize"])
        )
        return step, {"grad_gnorm": float(np.linalg.norm(gradient))}


class ARSPolicy(PerturbedPolicy):
    """Steps along the best directions, by the difference that their two episodes made.

        θ ← θ + α / (b σ_R) Σ over the b best pairs of (R⁺ − R⁻) ε

    The best have the largest max(R⁺, R⁻), and σ_R is the deviation of their returns. An episode whose other one is not
    there yet waits for it.

    Source: Mania et al. 2018, "Simple random search provides a competitive approach to reinforcement learning",
    algorithm 2.
    """

    defaults_from = "rlframe.agents.es.es:ARS_DEFAULT_CONFIG"

    def __init__(self, observation_space: gym.Space[Any], action_space: gym.Space[Any], config: dict[str, Any]) -> None:
        super().__init__(observation_space, action_space, config)
        self.components["halves"] = self._halves = _Halves()

    def rewarded(self, rewards: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns rewards less `offset`."""
        return rewards - float(self.config["offset"])

    def step_of(
        self, pairs: NDArray[np.int64], signs: NDArray[np.int64], returns: NDArray[np.float64]
    ) -> tuple[Vector, dict[str, float]]:
        """Returns the step; see the class."""
        known, both = self._halves.joined(pairs, signs, returns)
        best = np.argsort(-both.max(axis=1), kind="stable")[: self.config["rollouts_used"]]
        known, both = known[best], both[best]
        spread = float(both.std()) if len(both) else 0.0
        differences = (both[:, 0] - both[:, 1]) / (max(len(both), 1) * (spread if spread > 1e-8 else 1.0))
        gradient = self.weighted_noise(known.tolist(), differences.tolist())
        step = np.float32(self.config["sgd_stepsize"]) * gradient
        return step, {"grad_gnorm": float(np.linalg.norm(gradient)), "directions": len(both), "returns_std": spread}


def centered_ranks(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns ranks from −½ (the smallest of all) to ½, shaped as `x`; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(np.ravel(x), return_inverse=True, return_counts=True)
    if len(inverse) < 2:
        return np.zeros(np.shape(x))
    ranks = (np.cumsum(counts) - (counts + 1) / 2)[inverse] / (len(inverse) - 1) - 0.5
    return np.asarray(ranks.reshape(np.shape(x)), np.float64)


class _Adam(Component):
    """Adam (Kingma and Ba 2015, algorithm 1) on one vector.

    Args:
        size: Its length.
    """

    _BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8

    def __init__(self, size: int) -> None:
        self._first, self._second, self._steps = np.zeros(size, np.float32), np.zeros(size, np.float32), 0

    def step(self, gradient: Vector, rate: float) -> Vector:
        """Returns by how much weights move down the gradient `[P]`."""
        self._steps += 1
        self._first += np.float32(1 - self._BETA1) * (gradient - self._first)
        self._second += np.float32(1 - self._BETA2) * (np.square(gradient) - self._second)
        corrected = math.sqrt(1 - self._BETA2**self._steps) / (1 - self._BETA1**self._steps)
        moved: Vector = np.float32(-rate * corrected) * self._first
        moved /= np.sqrt(self._second) + np.float32(self._EPSILON)
        return moved

    def get_state(self) -> dict[str, Any]:
        """Returns both moments and the number of steps."""
        return {"first": self._first, "second": self._second, "steps": self._steps}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes these back."""
        self._first, self._second = np.array(state["first"], np.float32), np.array(state["second"], np.float32)
        self._steps = int(state["steps"])


class _Halves(Component):
    """Episodes whose pair lacks the other one."""

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[int, float]] = {}

    def joined(
        self, pairs: NDArray[np.int64], signs: NDArray[np.int64], returns: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Returns whole pairs `[D]` and the returns of each with sign 1 and −1 `[D, 2]`."""
        known, both = [], []
        for pair, sign, value in zip(pairs.tolist(), signs.tolist(), returns.tolist(), strict=True):
            other = self._waiting.pop(pair, None)
            if other is None or other[0] == sign:
                self._waiting[pair] = (sign, value)
                continue
            known.append(pair)
            both.append((value, other[1]) if sign > 0 else (other[1], value))
        return np.array(known, np.int64), np.array(both, np.float64).reshape(-1, 2)

    def get_state(self) -> dict[str, Any]:
        """Returns who waits."""
        return {"waiting": [[pair, sign, value] for pair, (sign, value) in self._waiting.items()]}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes these back."""
        self._waiting = {int(pair): (int(sign), float(value)) for pair, sign, value in state["waiting"]}


#: RLlib's names of both frameworks' policies; they act and learn in NumPy, whichever the config names.
ESTorchPolicy = ESTFPolicy = ESPolicy
ARSTorchPolicy = ARSTFPolicy = ARSPolicy
