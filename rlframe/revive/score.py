"""What rollouts are worth, per step: of policies in learned environments, and of what was logged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rlframe.revive.nodes import DONE

if TYPE_CHECKING:
    from rlframe.revive.data import GraphData
    from rlframe.revive.functions import RewardFunction

__all__ = ["logged_score", "score_per_step"]


def score_per_step(
    sums: NDArray[np.float64], steps: NDArray[np.int64], ended: NDArray[np.bool_], horizon: int, gamma: float
) -> NDArray[np.float64]:
    """Returns Σ γᵗ r / horizon of rollouts. Float64 `[B]`.

    Where the process ended before the horizon there are no rewards behind that. Where the log ended, the steps that are
    missing are taken to be as good as those before.

    Args:
        sums: Σ γᵗ r over each rollout's steps.
        steps: How many these are, each in [1, horizon].
        ended: Whether the process ended with the last of them.
        horizon: Steps of a whole rollout.
        gamma: Discount.
    """
    weights = np.concatenate([[0.0], np.cumsum(gamma ** np.arange(horizon))])
    lived = np.where(ended, weights[horizon], weights[steps])
    return np.asarray(sums / lived * (weights[horizon] / horizon), np.float64)


def logged_score(data: GraphData, reward: RewardFunction, horizon: int, gamma: float) -> float:
    """Returns what policies' scores are compared with: the mean reward of all rows.

    With a discount, or where rollouts in the learned environment can end, it is the log's mean score from each row on.
    """
    mean = data.mean_reward(reward)
    can_end = DONE in data.graph.nodes or bool(data.graph.external)
    if gamma == 1 and not (can_end and (data.done > 0.5).any()):
        return mean
    rewards = np.asarray(reward(data.arrays), np.float64)
    rows = np.arange(len(data))
    lengths = np.diff(data.ends, prepend=0)
    left = np.repeat(data.ends, lengths) - rows
    steps = np.minimum(left, horizon)
    sums = np.zeros(len(data))
    for step in range(int(steps.max())):
        sums += np.where(step < steps, gamma**step * rewards[np.minimum(rows + step, len(data) - 1)], 0.0)
    ended = np.repeat(data.done[data.ends - 1, 0] > 0.5, lengths) & (left <= horizon)
    return float(score_per_step(sums, steps, ended, horizon, gamma).mean())
