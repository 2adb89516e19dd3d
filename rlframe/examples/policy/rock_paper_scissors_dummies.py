"""Opponents for rock, paper, scissors."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.examples.policy.random_policy import RandomPolicy
from rlframe.policy.policy import Policy

ROCK, PAPER, SCISSORS = 0, 1, 2


class _Heuristic(RandomPolicy):
    """Keeps one move for each episode: as the state of a memory, one-hot [3]."""

    def get_initial_state(self) -> list[Any]:
        """Returns a move, drawn at random, one-hot."""
        return [np.eye(3, dtype=np.float32)[self._action_rng.integers(3)]]

    def num_state_tensors(self) -> int:
        """Returns 1: the move."""
        return 1


class AlwaysSameHeuristic(_Heuristic):
    """Makes the same move through an episode, drawn at its start."""

    def compute_actions(
        self, obs_batch: Any, state_batches: Any = None, *args: Any, **kwargs: Any
    ) -> tuple[Any, list[Any], dict[str, Any]]:
        """Returns the moves [B]."""
        return np.argmax(state_batches[0], axis=1), list(state_batches), {}


class BeatLastHeuristic(Policy):
    """Makes the move that beats the opponent's last one, which the observation shows: 0, 1, 2, or 3 at the start."""

    def compute_actions(
        self, obs_batch: Any, state_batches: Any = None, *args: Any, **kwargs: Any
    ) -> tuple[Any, list[Any], dict[str, Any]]:
        """Returns the moves [B]; a random one where there was no last one."""
        obs = np.asarray(obs_batch)
        seen = obs.argmax(axis=1) if obs.ndim > 1 else obs
        return np.where(seen > SCISSORS, self._action_rng.integers(0, 3, len(seen)), (seen + 1) % 3), [], {}

    def learn_on_batch(self, samples: Any) -> dict[str, Any]:
        """Learns nothing."""
        return {}

    def get_weights(self) -> dict[str, Any]:
        """Returns no weights."""
        return {}

    def set_weights(self, weights: Any) -> None:
        """Takes no weights."""
