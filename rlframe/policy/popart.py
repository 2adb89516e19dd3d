"""PopArt: values are learned normalised by the running moments of their targets."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.policy.policy import State
from rlframe.utils.errors import CheckpointError

#: Weight of a batch in the running moments of value targets; the first ones count alike.
_NEWEST = 0.01
#: Targets that spread less than this, in reward units, are learned as they are.
_MIN_STD = 0.1


class PopArt:
    """Mixin of policies that learn V(s) as μ + σ times what a network gives.

    Source: van Hasselt et al. 2016, "Learning values across many orders of magnitude", section 2; Yu et al.
    2022, "The Surprising Effectiveness of PPO in Cooperative Multi-Agent Games", section 5.1.

    Attributes:
        normalizes: Whether μ and σ follow the targets; they are 0 and 1 otherwise.
        value_mean: μ, running mean of the value targets, in reward units.
        value_std: σ, their running standard deviation.
    """

    normalizes: bool
    value_mean: float
    value_std: float

    def setup_popart(self, config: dict[str, Any], *, normalizes: bool) -> None:
        """Starts with values that are not normalised."""
        self.normalizes = normalizes
        self.value_mean, self.value_std = 0.0, 1.0
        self._variance, self._targets_seen = 0.0, 0
        self._most, self._gamma = 0.0, float(config["gamma"])

    def update_value_moments(self, mean: float, spread: float, rewards: NDArray[Any]) -> None:
        """Takes a batch's value targets into the running moments, which have no bias to where they started.

        Targets are made of values, and so of the moments that follow them: those of a network that starts with large
        outputs would chase each other. No return is larger than max |r| / (1 − γ), and so the moments are not.

        Args:
            mean: Mean of the targets, in reward units.
            spread: Mean of ((v − μ) / σ)², with the moments as they are.
            rewards: Rewards of the batch [B].
        """
        self._most = max(self._most, float(np.abs(rewards).max(initial=0.0)))
        away = mean - self.value_mean
        variance = max(spread * self.value_std**2 - away**2, 0.0)
        most = self._most / (1.0 - self._gamma) if self._gamma < 1.0 else math.inf
        self._targets_seen += 1
        weight = max(_NEWEST, 1.0 / self._targets_seen)
        self.value_mean = min(max(self.value_mean + weight * away, -most), most)
        self._variance = min((1.0 - weight) * (self._variance + weight * away**2) + weight * variance, most**2)
        self.value_std = max(self._variance**0.5, _MIN_STD)

    def set_value_moments(self, mean: float, std: float) -> None:
        """Goes on from moments that came from elsewhere: later batches move them as little as those of a long run.

        Args:
            mean: μ, in reward units.
            std: σ, in reward units.
        """
        if np.float32(mean) == np.float32(self.value_mean) and np.float32(std) == np.float32(self.value_std):
            return
        self.value_mean, self.value_std, self._variance = mean, std, std**2
        self._targets_seen = max(self._targets_seen, round(1.0 / _NEWEST))
        if self._gamma < 1.0:
            self._most = max(self._most, (1.0 - self._gamma) * max(abs(mean), std))

    def get_state(self: Any) -> State:
        """Returns the policy's state with the moments that its values are normalised by.

        They are μ, σ², the number of batches these come from, and the largest reward seen. Float64 `[4]`.
        """
        state: State = super().get_state()  # type: ignore[misc]  # of the policy behind the mixin
        if self.normalizes:
            moments = [self.value_mean, self._variance, self._targets_seen, self._most]
            state["popart"] = np.array(moments, np.float64)
        return state

    def set_state(self: Any, state: State) -> None:
        """Takes what `get_state` returned.

        Raises:
            CheckpointError: If its values are normalised and this policy's are not, or the other way round.
        """
        saved = state.get("popart")
        if "weights" in state and (saved is not None) != self.normalizes:
            kinds = ("in reward units", "normalised (PopArt)")
            raise CheckpointError(
                f"the saved policy's network gives values {kinds[saved is not None]}, this one's "
                f"{kinds[self.normalizes]}; set normalize_values={saved is not None}, as the saved run had it"
            )
        super().set_state(state)  # type: ignore[misc]
        if saved is not None:
            self.value_mean, self._variance = float(saved[0]), float(saved[1])
            self._targets_seen, self._most = int(saved[2]), float(saved[3])
            self.value_std = max(self._variance**0.5, _MIN_STD) if self._targets_seen else 1.0
