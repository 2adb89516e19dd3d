"""Fitted Q evaluation: Q of a policy as networks, which learn from recorded rows; with members for its interval.

Member 0 is fitted to all episodes, others to episodes drawn again, and the last one to what was done, whose value is
known: by what it is off, the others may be off, too, and their spread does not show that. A member's network learns
what the linear solution (`linear_q`) of its episodes leaves: it begins near the answer, and where that is exact, adds
nothing:

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
from rlframe.offline.evaluation.fitted_q_policy import COUNTS, NEXT_POLICY, NEXT_TAKEN, FittedQSettings, make_policy
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
            self._taken = np.eye(target.choices, dtype=np.float32)[self._actions]
        else:
            self._actions = np.asarray(episodes.actions, np.float32).reshape(len(self._inputs), -1)
            self._own = target.actions(episodes.obs, DRAWN_ACTIONS).reshape(len(self._inputs), -1)
            self._taken = self._actions

    def values(self, framework: str, seed: int) -> tuple[Floats, Floats, float]:
        """Returns the policy's value by each member, how often it had each episode, and the misfit.

        The values are float64 `[1 + M]`, the numbers `[M, N]`. The misfit is how far the network of the behaviour is
        off the behaviour's mean return.

        Args:
            framework: "torch" or "tf".
            seed: Of weights, of rows in updates, and of drawing episodes again.
        """
        number, starts = len(self.episodes), self.episodes.starts
        drawn = Draws.of(number, self.settings.members, derive_seed(seed, "fitted q, episodes")).counts
        counts = np.vstack([np.ones(number), drawn, np.ones(number)])
        solved = np.stack([self._linear.solve(each) for each in counts[:-1]], axis=1)  # [d, 1 + M]
        rows = self._linear.rows
        behaved = LinearModel(rows.behaved(), self.gamma)
        of_behaviour = behaved.solve(counts[-1])[:, None]
        left = np.hstack([self._left(rows, solved), self._left(behaved.rows, of_behaviour)])
        scale = max(float((rows.taken @ solved[:, 0]).std()), float(left[:, 0].std()), 1e-6)
        *networks, of_taken = self._fit(self._columns(left / scale, counts), framework, seed)
        rest = [self._values_of(network, self._own, starts) for network in networks]
        by_episode = rows.own[starts] @ solved + scale * np.stack(rest, axis=1)
        by_behaviour = rows.taken[starts] @ of_behaviour[:, 0] + scale * self._values_of(of_taken, self._taken, starts)
        misfit = abs(float(by_behaviour.mean() - self.episodes.returns(self.gamma).mean()))
        return np.asarray(np.einsum("en,ne->e", counts[:-1], by_episode) / number, np.float64), drawn, misfit

    def _left(self, rows: Transitions, solved: Floats) -> Floats:
        """Returns what linear solutions `[d, m]` leave of each row's reward, `[R, m]`."""
        left: Floats = rows.rewards[:, None] + self.gamma * (rows.following @ solved) - rows.taken @ solved
        return left

    def _columns(self, rewards: Floats, counts: Floats) -> Columns:
        """Returns what updates draw rows of: each member's rewards `[R, 2 + M]`, of episodes counted `[2 + M, N]`."""
        rows = self._linear.rows
        behind = np.minimum(np.arange(len(self._inputs)) + 1, len(self._inputs) - 1)
        return {
            OBS: self._inputs,
            ACTIONS: self._actions,
            REWARDS: rewards.astype(np.float32),
            NEXT_OBS: self._inputs[behind],
            NEXT_POLICY: self._own[behind],
            NEXT_TAKEN: self._taken[behind],
            DISCOUNTS: np.where(rows.last, 0.0, self.gamma).astype(np.float32),
            COUNTS: counts.T[rows.owners].astype(np.float32),
        }

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

    def _values_of(self, network: ChainActor, policy: NDArray[Any], rows: NDArray[np.int64]) -> Floats:
        """Returns E f(s, a) of some rows, float64 `[n]`; `policy` has probabilities or actions, as `NEXT_POLICY`."""
        inputs, own = self._inputs[rows], policy[rows]
        if self.choices:
            return np.asarray((network.forward(inputs) * own).sum(axis=1), np.float64)
        width = self._actions.shape[1]
        parts = [own[:, start : start + width] for start in range(0, own.shape[1], width)]
        each = [network.forward(np.hstack([inputs, part]))[:, 0] for part in parts]
        return np.asarray(np.mean(each, axis=0), np.float64)


def _in_numpy(name: str, spec: Network, weights: dict[str, Any]) -> ChainActor:
    return ChainActor({"outputs": spec.prefixed(name), "values": None, "shared": 0}, weights)


__all__ = ["FittedQ"]
