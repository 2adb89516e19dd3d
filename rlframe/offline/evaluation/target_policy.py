"""The policy that is judged: what it does, and with which probability, exploring or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlframe.policy.policy import Policy
from rlframe.utils.errors import DataError

Floats = NDArray[np.float64]
#: Rows in one forward pass.
_CHUNK = 4096


class TargetPolicy:
    """A policy as it acts, exploring or greedily.

    Attributes:
        policy: The policy.
        explore: Whether it explores.
        discrete: Whether actions are one choice of several.
        choices: How many; 0 where not `discrete`.

    Args:
        policy: Without memory, with a distribution that is built in.
        explore: Whether it explores.

    Raises:
        DataError: If the policy is none whose probabilities could be told.
    """

    def __init__(self, policy: Policy, *, explore: bool) -> None:
        if policy.needs_memory():
            raise DataError(
                "off-policy estimates: got a policy with memory, wanted one that acts on observations alone"
            )
        if policy.numpy_dist is None:
            raise DataError(
                f"off-policy estimates: got {type(policy).__name__} with a distribution or a way of acting of its own, "
                "wanted a built-in distribution, whose probabilities are known"
            )
        self.policy, self.explore = policy, explore
        space = policy.action_space_struct
        self.discrete = isinstance(space, gym.spaces.Discrete)
        self.choices = int(space.n) if isinstance(space, gym.spaces.Discrete) else 0
        self._exploration = type(policy.exploration).__name__

    def probabilities(self, obs: NDArray[Any]) -> Floats:
        """Returns π(·|s), float64 `[B, A]`, of a policy that is `discrete`.

        Raises:
            DataError: If its exploration tells no probabilities.
        """
        return _in_chunks(self._probabilities, obs)

    def logp(self, obs: NDArray[Any], actions: NDArray[Any]) -> Floats:
        """Returns log π(a|s), float64 `[B]`; minus infinity for what the policy never does.

        Args:
            obs: `[B, ...]`.
            actions: In the policy's space, `[B, ...]`.

        Raises:
            DataError: If its exploration tells no probabilities, or it acts deterministically in other than choices.
        """
        if self.discrete:
            chosen = np.asarray(actions, np.int64).reshape(len(obs), 1)
            with np.errstate(divide="ignore"):
                return np.log(np.take_along_axis(self.probabilities(obs), chosen, axis=1)[:, 0])
        self._check_density()
        return _in_chunks(self._density, obs, actions)

    def actions(self, obs: NDArray[Any], count: int) -> NDArray[np.float32]:
        """Returns what the policy does in each row, drawn `count` times, float32 `[B, count, n]`; once if greedy."""
        draws = count if self.explore else 1
        drawn = [_in_chunks(self._acted, obs) for _ in range(draws)]
        return np.stack([made.reshape(len(obs), -1) for made in drawn], axis=1).astype(np.float32)

    def _distribution(self, obs: NDArray[Any]) -> Any:
        return self.policy.distribution(self.policy.forward(obs, explore=False)[0])

    def _probabilities(self, obs: NDArray[Any]) -> Floats:
        distribution = self._distribution(obs)
        if not self.explore:
            best = np.asarray(distribution.deterministic_sample(), np.int64)
            return np.eye(self.choices)[best]
        made = self.policy.exploration.action_probabilities(distribution, self.policy.global_timestep)
        if made is None:
            raise self._unknown()
        return np.asarray(made, np.float64)

    def _check_density(self) -> None:
        if not self.explore:
            raise DataError(
                "the policy acts deterministically in a continuous space, where its actions have no density: give "
                "--explore, or take fqe or dm, which need none"
            )
        exploration, now = self.policy.exploration, self.policy.global_timestep
        if self._exploration != "StochasticSampling" or exploration.is_random_at(now):
            raise self._unknown()

    def _density(self, obs: NDArray[Any], actions: NDArray[Any]) -> Floats:
        return np.asarray(self._distribution(obs).logp(np.asarray(actions)), np.float64)

    def _acted(self, obs: NDArray[Any]) -> NDArray[Any]:
        made, _ = self.policy.act_on_rows(obs, self.explore)
        return np.asarray(made)

    def _unknown(self) -> DataError:
        return DataError(
            f"the policy explores by {self._exploration}, which tells no probabilities: leave out --explore, or take "
            "fqe or dm where actions are continuous"
        )


def _in_chunks(function: Callable[..., NDArray[Any]], *columns: NDArray[Any]) -> NDArray[Any]:
    """Returns a function's rows for columns, computed by some thousands of rows."""
    starts = range(0, len(columns[0]), _CHUNK)
    return np.concatenate([function(*(column[start : start + _CHUNK] for column in columns)) for start in starts])


__all__ = ["TargetPolicy"]
