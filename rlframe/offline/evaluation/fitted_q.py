"""Fitted Q evaluation: Q of a policy as networks, which learn from recorded rows; with members for its interval.

Member 0 is fitted to all episodes, each other one to episodes drawn again. A member's network learns what the linear
solution (`linear_q`) of its episodes leaves, so it begins near the answer, and where that is exact, adds nothing:

    Q(s, a) = θᵀ φ(s, a) + f(s, a),   f ← E[ δ + γ Σ_a' π(a'|s') f⁻(s', a') ],   δ = r + γ θᵀ ψ − θᵀ φ

Source: Le, Voloshin & Yue 2019, "Batch Policy Learning under Constraints", algorithm 3 (FQE); Hao et al. 2021,
"Bootstrapping Fitted Q-Evaluation for Off-Policy Inference" (episodes drawn again).
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import ACTIONS, DISCOUNTS, NEXT_OBS, OBS, REWARDS
from rlframe.data.sample_batch import SampleBatch
from rlframe.models.actor import ChainActor
from rlframe.models.spec import Network
from rlframe.offline.evaluation.bootstrap import Draws, Floats
from rlframe.offline.evaluation.fitted_q_policy import COUNTS, NEXT_POLICY, FittedQSettings, make_policy
from rlframe.offline.evaluation.linear_q import DRAWN_ACTIONS, Features, LinearModel, Transitions
from rlframe.offline.evaluation.logged_episodes import LoggedEpisodes
from rlframe.offline.evaluation.target_policy import TargetPolicy
from rlframe.utils.seeding import derive_seed, make_rng

Columns = dict[str, NDArray[Any]]


class FittedQ:
    """A policy's Q by networks, for all episodes and for some drawn again.

    Args:
        target: The policy.
        episodes: What Q is fitted to.
        features: What networks and linear solutions see.
        settings: How networks are fitted.
        gamma: Discount per step.
    """

    def __init__(
        self,
        target: TargetPolicy,
        episodes: LoggedEpisodes,
        features: Features,
        settings: FittedQSettings,
        gamma: float,
    ) -> None:
        self.episodes, self.settings, self.gamma = episodes, settings, gamma
        self.choices = target.choices
        self._inputs = features.inputs(episodes).astype(np.float32)
        self._linear = LinearModel(features.transitions(episodes, target), gamma)
        self._actions: NDArray[Any]
        if target.discrete:
            self._actions = np.asarray(episodes.actions, np.int64).reshape(-1)
            self._own = target.probabilities(episodes.obs).astype(np.float32)
        else:
            self._actions = np.asarray(episodes.actions, np.float32).reshape(len(self._inputs), -1)
            self._own = target.actions(episodes.obs, DRAWN_ACTIONS).reshape(len(self._inputs), -1)

    def values(self, framework: str, seed: int) -> tuple[Floats, Floats]:
        """Returns the policy's value by each member, float64 `[1 + M]`, and how often it had each episode `[M, N]`.

        Args:
            framework: "torch" or "tf".
            seed: Of weights, of rows in updates, and of drawing episodes again.
        """
        number, starts = len(self.episodes), self.episodes.starts
        drawn = Draws.of(number, self.settings.members, derive_seed(seed, "fitted q, episodes")).counts
        counts = np.vstack([np.ones(number), drawn])
        solved = np.stack([self._linear.solve(each) for each in counts], axis=1)  # [d, 1 + M]
        rows = self._linear.rows
        linear = rows.own[starts] @ solved
        columns, scale = self._columns(rows, solved, counts)
        networks = self._fit(columns, framework, seed)
        rest = np.stack([self._values_of(network, starts) for network in networks], axis=1)
        by_episode = linear + scale * rest
        return np.asarray(np.einsum("en,ne->e", counts, by_episode) / number, np.float64), drawn

    def _columns(self, rows: Transitions, solved: Floats, counts: Floats) -> tuple[Columns, float]:
        """Returns what updates draw rows of, and by what rewards in them were divided."""
        taken = rows.taken @ solved
        left = rows.rewards[:, None] + self.gamma * (rows.following @ solved) - taken
        scale = max(float(taken[:, 0].std()), float(left[:, 0].std()), 1e-6)
        behind = np.minimum(np.arange(len(self._inputs)) + 1, len(self._inputs) - 1)
        return {
            OBS: self._inputs,
            ACTIONS: self._actions,
            REWARDS: (left / scale).astype(np.float32),
            NEXT_OBS: self._inputs[behind],
            NEXT_POLICY: self._own[behind],
            DISCOUNTS: np.where(rows.last, 0.0, self.gamma).astype(np.float32),
            COUNTS: counts.T[rows.owners].astype(np.float32),
        }, scale

    def _fit(self, columns: Columns, framework: str, seed: int) -> list[ChainActor]:
        """Returns the members' networks after all updates, in NumPy."""
        settings, rng = self.settings, make_rng(seed, "fitted q, rows")
        obs_space = gym.spaces.Box(-np.inf, np.inf, self._inputs.shape[1:], np.float32)
        width = self._actions.shape[1] if not self.choices else 0
        action_space = gym.spaces.Box(-1.0, 1.0, (width,)) if width else gym.spaces.Discrete(self.choices)
        policy = make_policy(framework, obs_space, action_space, settings, derive_seed(seed, "fitted q, weights"))
        for _ in range(settings.updates):
            drawn = rng.integers(len(self._inputs), size=settings.batch_size)
            policy.learn_on_batch(SampleBatch({name: column[drawn] for name, column in columns.items()}))
            policy.update_target(settings.tau)
        weights = policy.get_weights()
        return [_in_numpy(name, spec, weights) for name, spec in policy.networks().items()]

    def _values_of(self, network: ChainActor, rows: NDArray[np.int64]) -> Floats:
        """Returns E_{a ~ π} f(s, a) of some rows, float64 `[n]`."""
        inputs, own = self._inputs[rows], self._own[rows]
        if self.choices:
            return np.asarray((network.forward(inputs) * own).sum(axis=1), np.float64)
        width = self._actions.shape[1]
        parts = [own[:, start : start + width] for start in range(0, own.shape[1], width)]
        each = [network.forward(np.hstack([inputs, part]))[:, 0] for part in parts]
        return np.asarray(np.mean(each, axis=0), np.float64)


def _in_numpy(name: str, spec: Network, weights: dict[str, Any]) -> ChainActor:
    return ChainActor({"outputs": spec.prefixed(name), "values": None, "shared": 0}, weights)


__all__ = ["FittedQ"]
