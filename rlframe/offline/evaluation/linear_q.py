"""Q of a policy as a linear function of features, solved by least squares; exact where states are tables.

    Q(s, a) = θᵀ φ(s, a),   Σ_i w_i φ_i (φ_i − γ ψ_i)ᵀ θ + λ θ = Σ_i w_i φ_i r_i,   ψ = E_{a' ~ π(·|s')} φ(s', a')

Source: Bradtke & Barto 1996, "Linear Least-Squares Algorithms for Temporal Difference Learning"; Lagoudakis & Parr
2003, "Least-Squares Policy Iteration", section 5 (LSTDQ).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rlframe.offline.evaluation.bootstrap import Floats
from rlframe.offline.evaluation.logged_episodes import LoggedEpisodes
from rlframe.offline.evaluation.target_policy import TargetPolicy
from rlframe.utils.errors import DataError

#: λ by row: enough to settle what the data leave open, too little to move what they say.
_RIDGE = 1e-6
#: Most numbers of a state for which products of two are features, too.
_MOST_FOR_PRODUCTS = 24
#: Largest standardised number: squares of what lies farther out would outweigh all else.
_MOST_DEVIATIONS = 5.0
#: Most numbers in the sums by episode that refits are made of.
_MOST_NUMBERS = 40_000_000
#: Actions that are drawn where an expectation over a continuous policy is wanted.
DRAWN_ACTIONS = 8


@dataclass(frozen=True)
class Transitions:
    """What Q is fitted to: rows of whole episodes, in features.

    Attributes:
        taken: φ(s, a) of what was done, float64 `[R, d]`.
        own: E_{a ~ π} φ(s, a) of the policy's own actions in the same states, float64 `[R, d]`.
        rewards: Float64 `[R]`.
        last: Whether a row ends its episode, bool `[R]`.
        owners: Number of each row's episode, int64 `[R]`.
    """

    taken: Floats
    own: Floats
    rewards: Floats
    last: NDArray[np.bool_]
    owners: NDArray[np.int64]

    def behaved(self) -> Transitions:
        """Returns the same with the behaviour in place of the policy: what comes next is what was done next."""
        return replace(self, own=self.taken)

    @property
    def following(self) -> Floats:
        """ψ, what comes next in features: the next row's `own`, 0 behind ends. Float64 `[R, d]`."""
        made = np.zeros_like(self.own)
        made[:-1] = self.own[1:]
        made[self.last] = 0.0
        return made


class LinearModel:
    """Solves for θ, for episodes counted as often as told.

    Args:
        rows: The transitions.
        gamma: Discount per step.
    """

    def __init__(self, rows: Transitions, gamma: float) -> None:
        self.rows = rows
        self._lengths = np.bincount(rows.owners)
        # What a solution is made of: [differences, rewards] by row, of which sums by episode serve many refits.
        self._sides = np.column_stack([rows.taken - gamma * rows.following, rows.rewards])

    def solve(self, counts: Floats) -> Floats:
        """Returns θ, float64 `[d]`.

        Args:
            counts: How often each episode counts, float64 `[N]`; 0 leaves it out.
        """
        taken = self.rows.taken
        sums = self._sums_by_episode
        if sums is None:
            both = (taken * counts[self.rows.owners][:, None]).T @ self._sides
        else:
            both = (counts @ sums).reshape(taken.shape[1], -1)
        ridge = _RIDGE * max(float(counts @ self._lengths), 1.0) * np.eye(taken.shape[1])
        return np.asarray(np.linalg.solve(both[:, :-1] + ridge, both[:, -1]), np.float64)

    @cached_property
    def _sums_by_episode(self) -> Floats | None:
        """Σ_t φ_t [differences, reward] of each episode, flat, float64 `[N, d (d + 1)]`; None if that is too much."""
        taken, sides, number = self.rows.taken, self._sides, len(self._lengths)
        if number * taken.shape[1] * sides.shape[1] > _MOST_NUMBERS:
            return None
        stops = np.cumsum(self._lengths)
        spans = zip(stops - self._lengths, stops, strict=True)
        return np.stack([(taken[start:stop].T @ sides[start:stop]).ravel() for start, stop in spans])


class Features:
    """φ: polynomials of second degree in the standardised observation, for each choice or joined with the action.

    Observations of 0 and 1 with a single 1, as those of a Discrete space are, stay as they are: a table. Where episodes
    are cut at a limit, the step is a part of the state, for the cut is an end then.

    Args:
        episodes: What means and deviations are taken of.
    """

    def __init__(self, episodes: LoggedEpisodes) -> None:
        flat = episodes.obs.reshape(len(episodes.obs), -1).astype(np.float64)
        self.is_table = bool(((flat == 0) | (flat == 1)).all() and (flat.sum(axis=1) == 1).all())
        self._limit = episodes.time_limit
        self._width = flat.shape[1] + (self._limit is not None)
        self._mean, deviation = flat.mean(axis=0), flat.std(axis=0)
        self._scale = np.where(deviation > 1e-8, deviation, 1.0)

    def inputs(self, episodes: LoggedEpisodes) -> Floats:
        """Returns standardised observations, and behind them the step if it is a part of the state. `[R, n]`."""
        flat = episodes.obs.reshape(len(episodes.obs), -1).astype(np.float64)
        made = flat
        if not self.is_table:
            made = np.clip((flat - self._mean) / self._scale, -_MOST_DEVIATIONS, _MOST_DEVIATIONS)
        if self._limit is None:
            return made
        return np.column_stack([made, 2.0 * episodes.steps / self._limit - 1.0])

    def _of_state(self, inputs: Floats) -> Floats:
        if not self.is_table:
            return _polynomials(inputs)
        if self._limit is None:
            return inputs
        table, step = inputs[:, :-1], inputs[:, -1:]
        return np.hstack([table, table * step, table * step**2])

    def transitions(self, episodes: LoggedEpisodes, target: TargetPolicy) -> Transitions:
        """Returns episodes in features, with what the policy would do in each state."""
        states = self.inputs(episodes)
        if target.discrete:
            of_state = self._of_state(states)
            chosen = np.asarray(episodes.actions, np.int64).reshape(-1)
            if chosen.size != len(states) or chosen.min() < 0 or chosen.max() >= target.choices:
                raise DataError(f"input: got actions up to {chosen.max()}, wanted 0 to {target.choices - 1}")
            taken = _outer(of_state, np.eye(target.choices)[chosen])
            own = _outer(of_state, target.probabilities(episodes.obs))
        else:
            actions = np.asarray(episodes.actions, np.float64).reshape(len(states), -1)
            drawn = target.actions(episodes.obs, DRAWN_ACTIONS).astype(np.float64)
            taken, *each = (_polynomials(np.hstack([states, made])) for made in (actions, *np.swapaxes(drawn, 0, 1)))
            own = np.mean(each, axis=0)
        return Transitions(taken, own, episodes.rewards, episodes.last, episodes.owners)


def _polynomials(x: Floats) -> Floats:
    """Returns 1, x_i, and x_i x_j; of many numbers x_i² in place of all products."""
    if x.shape[1] <= _MOST_FOR_PRODUCTS:
        rows, columns = np.triu_indices(x.shape[1])
        products = x[:, rows] * x[:, columns]
    else:
        products = x**2
    return np.hstack([np.ones((len(x), 1)), x, products])


def _outer(states: Floats, actions: Floats) -> Floats:
    """Returns f(s) ⊗ e(a), float64 `[R, k · A]`."""
    made: Floats = np.einsum("rk,ra->rka", states, actions).reshape(len(states), -1)
    return made


def cross_fitted(model: LinearModel, episodes: LoggedEpisodes, folds: int) -> tuple[Floats, Floats]:
    """Returns V(s_t) and Q(s_t, a_t), float64 `[R]` each, by models that have not seen the row's episode.

    Args:
        model: Solves for the episodes of some folds.
        episodes: The episodes.
        folds: Into how many parts they are shared out, one after the other; at most as many as there are episodes.
    """
    number = len(episodes)
    fold_of = np.arange(number) % min(folds, number)
    values, taken = np.zeros(len(episodes.rewards)), np.zeros(len(episodes.rewards))
    for fold in range(fold_of.max() + 1):
        theta = model.solve((fold_of != fold).astype(np.float64))
        here = fold_of[episodes.owners] == fold
        values[here], taken[here] = model.rows.own[here] @ theta, model.rows.taken[here] @ theta
    return values, taken


__all__ = ["DRAWN_ACTIONS", "Features", "LinearModel", "Transitions", "cross_fitted"]
