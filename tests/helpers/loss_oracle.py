"""The oracle: every formula once more, in plain NumPy float64, slow and easy to read.

Losses of all frameworks, and the vectorised returns, are tested against these. Nothing else calls them. Letters in
shapes are those of `rlframe.data.columns`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def _floats(values: ArrayLike) -> Array:
    return np.asarray(values, dtype=np.float64)


# --- Q-learning -----------------------------------------------------------------------------------------------------


def huber(x: ArrayLike, delta: float = 1.0) -> Array:
    """Returns x**2 / 2 where |x| <= delta, and delta * (|x| - delta / 2) beyond. Same shape.

    Source: Huber 1964, "Robust Estimation of a Location Parameter".
    """
    size = np.abs(_floats(x))
    return np.where(size <= delta, 0.5 * size**2, delta * (size - 0.5 * delta))


def dueling(values: ArrayLike, advantages: ArrayLike) -> Array:
    """Returns V + A - mean_a A.

    Args:
        values: V, `[B, 1]`, or `[B, 1, Z]` with atoms.
        advantages: A, `[B, A]`, or `[B, A, Z]`.

    Returns:
        Q-values, shaped like `advantages`.

    Source: Wang et al. 2016, "Dueling Network Architectures for Deep Reinforcement Learning", eq. 9.
    """
    advantages = _floats(advantages)
    combined: Array = _floats(values) + advantages - advantages.mean(axis=1, keepdims=True)
    return combined


def double_q_td_error(
    q_t: ArrayLike,
    actions: ArrayLike,
    rewards: ArrayLike,
    discounts: ArrayLike,
    q_tp1_value: ArrayLike,
    q_tp1_selector: ArrayLike,
) -> Array:
    """Returns Q(s_t, a_t) - [r_t + discount_t * Qvalue(s_tp1, argmax_a Qselector(s_tp1, a))], row by row.

    Args:
        q_t: Online values at `obs`, `[B, A]`.
        actions: Actions taken, int `[B]`.
        rewards: Summed rewards, `[B]`.
        discounts: gamma**k, 0 where terminated, `[B]`.
        q_tp1_value: Values to evaluate with at `new_obs`, `[B, A]`.
        q_tp1_selector: Values to select with at `new_obs`, `[B, A]`.

    Returns:
        `[B]`.

    Source: van Hasselt et al. 2016, "Deep Reinforcement Learning with Double Q-learning".
    """
    q_t, rewards, discounts = _floats(q_t), _floats(rewards), _floats(discounts)
    q_tp1_value, q_tp1_selector = _floats(q_tp1_value), _floats(q_tp1_selector)
    errors = []
    for row, action in enumerate(np.asarray(actions)):
        best = int(np.argmax(q_tp1_selector[row]))
        target = rewards[row] + discounts[row] * q_tp1_value[row, best]
        errors.append(q_t[row, int(action)] - target)
    return _floats(errors)


def q_loss(td_error: ArrayLike, weights: ArrayLike, delta: float = 1.0) -> float:
    """Returns the weighted mean of the Huber losses of the errors.

    Args:
        td_error: `[B]`.
        weights: Importance weights, `[B]`.
        delta: Where the Huber loss turns linear.
    """
    return float(np.mean(_floats(weights) * huber(td_error, delta)))


def project_distribution(probs: ArrayLike, rewards: ArrayLike, discounts: ArrayLike, atoms: ArrayLike) -> Array:
    """Returns the distribution of r + discount * z, moved back onto the atoms.

    Args:
        probs: Probabilities of the atoms at `new_obs`, `[B, Z]`.
        rewards: `[B]`.
        discounts: `[B]`.
        atoms: Evenly spaced, rising, `[Z]`.

    Returns:
        Probabilities `[B, Z]`.

    Source: Bellemare et al. 2017, "A Distributional Perspective on Reinforcement Learning", algorithm 1.
    """
    probs, rewards, discounts, atoms = (_floats(array) for array in (probs, rewards, discounts, atoms))
    spacing = atoms[1] - atoms[0]
    projected = np.zeros_like(probs)
    for row in range(len(probs)):
        for atom, prob in zip(atoms, probs[row], strict=True):
            moved = min(max(rewards[row] + discounts[row] * atom, atoms[0]), atoms[-1])
            for place, other in enumerate(atoms):
                projected[row, place] += prob * max(0.0, 1.0 - abs(moved - other) / spacing)
    return projected


def categorical_q_loss(logits_t: ArrayLike, target_probs: ArrayLike) -> Array:
    """Returns the cross-entropy between the target distribution and the predicted one, row by row.

    Args:
        logits_t: Online logits of the action taken at `obs`, `[B, Z]`.
        target_probs: Projected target distribution, `[B, Z]`.

    Returns:
        `[B]`.
    """
    loss: Array = -(_floats(target_probs) * log_softmax(logits_t)).sum(axis=-1)
    return loss


# --- returns --------------------------------------------------------------------------------------------------------


def gae(
    rewards: ArrayLike,
    values: ArrayLike,
    next_values: ArrayLike,
    terminateds: ArrayLike,
    ends: ArrayLike,
    gamma: float,
    lambda_: float,
) -> tuple[Array, Array]:
    """Returns generalised advantages and value targets of one column of steps, each `[T]`.

    Args:
        rewards: `[T]`.
        values: V(s_t), `[T]`.
        next_values: V(s_tp1), `[T]`.
        terminateds: Nothing follows, bool `[T]`.
        ends: The next row is of another trajectory, bool `[T]`.
        gamma: Discount.
        lambda_: Decay of the trace.

    Source: Schulman et al. 2016, eq. 16: the sum over l of (gamma * lambda)**l * delta_{t+l}, written out.
    """
    rewards, values, next_values = _floats(rewards), _floats(values), _floats(next_values)
    terminateds, ends = np.asarray(terminateds, bool), np.asarray(ends, bool)
    advantages = np.zeros_like(rewards)
    for t in range(len(rewards)):
        factor = 1.0
        for later in range(t, len(rewards)):
            following = 0.0 if terminateds[later] else next_values[later]
            advantages[t] += factor * (rewards[later] + gamma * following - values[later])
            factor *= gamma * lambda_
            if ends[later] or terminateds[later]:
                break
    return advantages, advantages + values


def vtrace(
    logp: ArrayLike,
    behaviour_logp: ArrayLike,
    rewards: ArrayLike,
    values: ArrayLike,
    values_next: ArrayLike,
    discounts: ArrayLike,
    ends: ArrayLike,
    clip_rho: float | None = 1.0,
    clip_pg_rho: float | None = 1.0,
    lambda_: float = 1.0,
) -> tuple[Array, Array]:
    """Returns V-trace's value targets v_s and advantages of the policy gradient, each `[B]`.

    Args:
        logp: log π(a|s) of the policy that learns, `[B]`.
        behaviour_logp: log μ(a|s) of the policy that acted, `[B]`.
        rewards: `[B]`.
        values: V(s_t), `[B]`.
        values_next: V(s_tp1), `[B]`.
        discounts: gamma * (1 - terminated), `[B]`.
        ends: The next row is of another trajectory, bool `[B]`.
        clip_rho: ρ̄; None does not clip.
        clip_pg_rho: The same for the policy gradient's weight.
        lambda_: λ of remark 2.

    Source: Espeholt et al. 2018, eq. 1: v_s = V(s) + the sum over t of γ^(t-s) (c_s ... c_{t-1}) δ_t, written out.
    """
    rewards, values, values_next = _floats(rewards), _floats(values), _floats(values_next)
    discounts, ends = _floats(discounts), np.asarray(ends, bool)
    ratios = np.exp(_floats(logp) - _floats(behaviour_logp))
    largest = math.inf if clip_rho is None else clip_rho
    targets = values.copy()
    for s in range(len(rewards)):
        factor = 1.0
        for t in range(s, len(rewards)):
            delta = min(largest, ratios[t]) * (rewards[t] + discounts[t] * values_next[t] - values[t])
            targets[s] += factor * delta
            factor *= discounts[t] * lambda_ * min(1.0, ratios[t])
            if ends[t]:
                break
    advantages = np.zeros_like(rewards)
    for s in range(len(rewards)):
        following = values_next[s] if ends[s] or s + 1 == len(rewards) else targets[s + 1]
        weight = min(math.inf if clip_pg_rho is None else clip_pg_rho, ratios[s])
        advantages[s] = weight * (rewards[s] + discounts[s] * following - values[s])
    return targets, advantages


def retrace(
    rewards: ArrayLike, discounts: ArrayLike, traces: ArrayLike, q_taken: ArrayLike, values_next: ArrayLike,
    ends: ArrayLike,
) -> Array:  # fmt: skip
    """Returns Q^ret as algorithm 2 of Wang et al. 2017 has it: from each trajectory's last row backwards. `[B]`."""
    rewards, discounts, traces, q_taken, values_next = map(_floats, (rewards, discounts, traces, q_taken, values_next))
    targets, after = np.zeros_like(rewards), 0.0
    for t in reversed(range(len(rewards))):
        if ends[t]:
            after = values_next[t]
        targets[t] = rewards[t] + discounts[t] * after
        if t > 0:  # what the row before sees behind it: V(s_t) is its next value
            after = traces[t] * (targets[t] - q_taken[t]) + values_next[t - 1]
    return targets


def n_step(
    rewards: ArrayLike, terminateds: ArrayLike, dones: ArrayLike, continues: ArrayLike, n: int, gamma: float
) -> dict[str, NDArray[Any]]:
    """Returns what n-step summing makes of each row.

    Args:
        rewards: `[B]`.
        terminateds: bool `[B]`.
        dones: Terminated or truncated, bool `[B]`.
        continues: Row i+1 is the step after row i, bool `[B]`; the last entry is not looked at.
        n: Rewards to sum at most.
        gamma: Discount.

    Returns:
        `rewards`, `discounts`, `n_steps`, and `last` (number of the last row summed), each `[B]`.
    """
    rewards, count = _floats(rewards), len(np.asarray(rewards))
    terminateds, dones, continues = (np.asarray(flags, bool) for flags in (terminateds, dones, continues))
    made: dict[str, list[Any]] = {"rewards": [], "discounts": [], "n_steps": [], "last": []}
    for first in range(count):
        total, steps, row = 0.0, 0, first
        while True:
            total += gamma**steps * rewards[row]
            steps += 1
            if steps == n or dones[row] or row + 1 == count or not continues[row]:
                break
            row += 1
        made["rewards"].append(total)
        made["discounts"].append(0.0 if terminateds[row] else gamma**steps)
        made["n_steps"].append(steps)
        made["last"].append(row)
    return {key: np.asarray(column) for key, column in made.items()}


# --- distributions ---------------------------------------------------------------------------------------------------


def log_softmax(logits: ArrayLike) -> Array:
    """Returns log probabilities along the last axis. Same shape."""
    logits = _floats(logits)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_probs: Array = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return log_probs


def softmax(logits: ArrayLike) -> Array:
    """Returns probabilities along the last axis. Same shape."""
    return np.exp(log_softmax(logits))


def categorical_logp(logits: ArrayLike, actions: ArrayLike) -> Array:
    """Returns the log probability of each action.

    Args:
        logits: `[B, A]`.
        actions: int `[B]`.

    Returns:
        `[B]`.
    """
    return _floats([row[int(action)] for row, action in zip(log_softmax(logits), np.asarray(actions), strict=True)])


def categorical_entropy(logits: ArrayLike) -> Array:
    """Returns -sum_a p(a) log p(a). `[B, A]` to `[B]`."""
    entropy: Array = -(softmax(logits) * log_softmax(logits)).sum(axis=-1)
    return entropy


def categorical_kl(logits: ArrayLike, other_logits: ArrayLike) -> Array:
    """Returns KL(p || q) = sum_a p(a) (log p(a) - log q(a)). `[B, A]` each to `[B]`."""
    divergence: Array = (softmax(logits) * (log_softmax(logits) - log_softmax(other_logits))).sum(axis=-1)
    return divergence


def diag_gaussian_logp(mean: ArrayLike, log_std: ArrayLike, x: ArrayLike) -> Array:
    """Returns the log density of `x` under independent normals, summed over the last axis. `[B, D]` each to `[B]`."""
    mean, log_std, x = _floats(mean), _floats(log_std), _floats(x)
    terms = -0.5 * ((x - mean) / np.exp(log_std)) ** 2 - log_std - 0.5 * math.log(2.0 * math.pi)
    density: Array = terms.sum(axis=-1)
    return density


def diag_gaussian_entropy(log_std: ArrayLike) -> Array:
    """Returns the entropy of independent normals, summed over the last axis. `[B, D]` to `[B]`."""
    entropy: Array = (_floats(log_std) + 0.5 * math.log(2.0 * math.pi * math.e)).sum(axis=-1)
    return entropy


def diag_gaussian_kl(mean: ArrayLike, log_std: ArrayLike, other_mean: ArrayLike, other_log_std: ArrayLike) -> Array:
    """Returns KL(p || q) of independent normals, summed over the last axis. `[B, D]` each to `[B]`."""
    mean, log_std, other_mean, other_log_std = (_floats(part) for part in (mean, log_std, other_mean, other_log_std))
    spread = np.exp(2.0 * log_std) + (mean - other_mean) ** 2
    terms = other_log_std - log_std + spread / (2.0 * np.exp(2.0 * other_log_std)) - 0.5
    divergence: Array = terms.sum(axis=-1)
    return divergence


def clipped_surrogate(logp: ArrayLike, logp_old: ArrayLike, advantages: ArrayLike, clip: float) -> Array:
    """Returns min(ρA, clip(ρ, 1 − ε, 1 + ε) A) row by row; see `losses.torch.policy_gradients`.

    Args:
        logp: log π(a|s), `[B]`.
        logp_old: log π_old(a|s), `[B]`.
        advantages: A, `[B]`.
        clip: ε.

    Source: Schulman et al. 2017, eq. 7.
    """
    rows = []
    for new, old, advantage in zip(_floats(logp), _floats(logp_old), _floats(advantages), strict=True):
        ratio = np.exp(new - old)
        bounded = min(max(ratio, 1.0 - clip), 1.0 + clip)
        rows.append(min(ratio * advantage, bounded * advantage))
    return np.array(rows, np.float64)


def clipped_value_loss(values: ArrayLike, values_old: ArrayLike, targets: ArrayLike, clip: float) -> Array:
    """Returns max((V − R)², (V_clipped − R)²) row by row; see `losses.torch.policy_gradients`.

    Args:
        values: V(s) now, `[B]`.
        values_old: V(s) when sampled, `[B]`.
        targets: R, `[B]`.
        clip: How far V may move from its old value and still count.
    """
    rows = []
    for now, old, target in zip(_floats(values), _floats(values_old), _floats(targets), strict=True):
        bounded = old + min(max(now - old, -clip), clip)
        rows.append(max((now - target) ** 2, (bounded - target) ** 2))
    return np.array(rows, np.float64)


def sampled_kl(logp: ArrayLike, behaviour_logp: ArrayLike, most_ratio: float = 20.0) -> Array:
    """Returns ρ − 1 − log ρ of ρ = π/μ, and its tangent in log ρ where ρ is beyond `most_ratio`. Float `[B]`.

    Args:
        logp: log π(a|s), `[B]`.
        behaviour_logp: log μ(a|s) of the policy that acted, `[B]`.
        most_ratio: Where the tangent begins.
    """
    made = []
    for log_ratio in _floats(logp) - _floats(behaviour_logp):
        if log_ratio <= math.log(most_ratio):
            made.append(math.exp(log_ratio) - 1.0 - log_ratio)
        else:
            at_most = most_ratio - 1.0 - math.log(most_ratio)
            made.append(at_most + (most_ratio - 1.0) * (log_ratio - math.log(most_ratio)))
    return np.asarray(made)


def action_bound_penalty(means: ArrayLike, low: ArrayLike, high: ArrayLike) -> Array:
    """Returns how far means lie outside of [low, high], in half widths of it, squared and summed. Float `[B]`.

    Args:
        means: `[B, A]`.
        low: Lower bounds, `[A]`.
        high: Upper bounds, `[A]`.
    """
    rows = _floats(means)
    total = np.zeros(len(rows))
    for index, row in enumerate(rows):
        for mean, least, most in zip(row, _floats(low), _floats(high), strict=True):
            away = max(least - mean, mean - most, 0.0)
            total[index] += (away / ((most - least) / 2.0)) ** 2
    return total


def explained_variance(targets: ArrayLike, predictions: ArrayLike) -> float:
    """Returns 1 − Var(targets − predictions) / Var(targets), at least −1; −1 without variance.

    Args:
        targets: `[B]`.
        predictions: `[B]`.
    """
    targets, predictions = _floats(targets), _floats(predictions)
    variance = float(np.var(targets))
    return -1.0 if variance == 0 else max(-1.0, 1.0 - float(np.var(targets - predictions)) / variance)
