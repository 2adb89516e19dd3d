"""Estimates by importance sampling, as functions of ratios and rewards `[N, T]`; equations in the docstrings.

Ratios are p_t = Π_{k≤t} π(a_k|s_k) / μ(a_k|s_k), with what an episode ended with behind its end; rewards there are 0.
Each function returns a statistic: estimate and standard error, for episodes counted as often as told (`bootstrap`).
"""

from __future__ import annotations

import numpy as np

from rlframe.offline.evaluation.bootstrap import Floats, Statistic, mean_of


def trajectory_wise(ratios: Floats, rewards: Floats, gamma: float) -> Floats:
    """Returns p_T Σ_t γ^t r_t of each episode, float64 `[N]`; their mean is the estimate.

    Source: Precup, Sutton & Singh 2000, "Eligibility Traces for Off-Policy Policy Evaluation", section 2.
    """
    return ratios[:, -1] * (rewards @ _discounts(rewards, gamma))


def per_decision(ratios: Floats, rewards: Floats, gamma: float) -> Floats:
    """Returns Σ_t γ^t p_t r_t of each episode, float64 `[N]`; their mean is the estimate.

    Source: the same, section 3.
    """
    return (ratios * rewards) @ _discounts(rewards, gamma)


def weighted_per_decision(ratios: Floats, rewards: Floats, gamma: float, less: Floats | None = None) -> Statistic:
    """Returns the statistic Σ_t γ^t (Σ_e p_et r_et) / (Σ_e p_et).

    Ended episodes go on with their last ratio, at rewards of 0: so it tends to the policy's value where that decides
    how long episodes are, too. Its standard error is the linearised one: with q_t = mean p_t and
    m_t = Σ p_t r_t / Σ p_t, the spread of Σ_t γ^t p_et (r_et − m_t) / q_t.

    Args:
        ratios: Float64 `[N, T]`.
        rewards: Float64 `[N, T]`.
        gamma: Discount per step.
        less: Numbers by episode whose mean is subtracted, float64 `[N]`; such as the behaviour's returns.

    Source: Thomas 2015, "Safe Reinforcement Learning", section 3.7 (consistent weighted per-decision).
    """
    subtracted = np.zeros(len(ratios)) if less is None else less
    discounts, weighted = _discounts(rewards, gamma), ratios * rewards

    def statistic(counts: Floats) -> tuple[Floats, Floats]:
        episodes = counts.shape[1]
        sums = counts @ ratios
        means = np.divide(counts @ weighted, sums, out=np.zeros_like(sums), where=sums > 0)
        scales = np.divide(episodes * discounts, sums, out=np.zeros_like(sums), where=sums > 0)
        influences = scales @ weighted.T - (scales * means) @ ratios.T  # [B, N]
        means_less = counts @ subtracted / episodes
        influences += means_less[:, None] - subtracted
        spread = (counts * influences**2).sum(axis=1) / episodes
        return means @ discounts - means_less, np.sqrt(spread / max(episodes - 1, 1))

    return statistic


def doubly_robust(ratios: Floats, rewards: Floats, values: tuple[Floats, Floats], gamma: float) -> Floats:
    """Returns V(s_0) + Σ_t γ^t p_t (r_t + γ V(s_{t+1}) − Q(s_t, a_t)) of each episode, float64 `[N]`.

    Their mean has no bias if the ratios are right, whatever Q is; the better Q, the smaller its variance. Q has to come
    from other episodes than it is used for.

    Args:
        ratios: Float64 `[N, T]`.
        rewards: Float64 `[N, T]`.
        values: V(s_t) = E_{a~π} Q(s_t, a) and Q(s_t, a_t), float64 `[N, T]` each, 0 behind ends.
        gamma: Discount per step.

    Source: Jiang & Li 2016, "Doubly Robust Off-policy Value Evaluation for Reinforcement Learning", eq. 10, unrolled;
        Thomas & Brunskill 2016, "Data-Efficient Off-Policy Policy Evaluation", eq. 1.
    """
    state_values, action_values = values
    following = np.pad(state_values[:, 1:], ((0, 0), (0, 1)))
    surprises = rewards + gamma * following - action_values
    return state_values[:, 0] + (ratios * surprises) @ _discounts(rewards, gamma)


def effective_sample_size(weights: Floats) -> float:
    """Returns (Σ w)² / Σ w²: as many episodes of the policy's own would say as much. 0 where all weights are.

    Source: Kish 1965, "Survey Sampling", section 11.7.
    """
    most = weights.max(initial=0.0)
    if most <= 0.0:
        return 0.0
    scaled = weights / most
    return float(scaled.sum() ** 2 / np.square(scaled).sum())


def _discounts(rewards: Floats, gamma: float) -> Floats:
    made: Floats = gamma ** np.arange(rewards.shape[1], dtype=np.float64)
    return made


__all__ = [
    "doubly_robust",
    "effective_sample_size",
    "mean_of",
    "per_decision",
    "trajectory_wise",
    "weighted_per_decision",
]
