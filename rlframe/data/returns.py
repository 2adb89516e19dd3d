"""Returns and advantages of trajectories, in NumPy: discounted sums, generalised advantage estimates (GAE)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.column_dict import terminal_rows, trajectory_ends
from rlframe.data.columns import ADVANTAGES, ENV_ID, REWARDS, VALUE_TARGETS, VF_PREDS
from rlframe.data.sample_batch import SampleBatch

FloatArray = NDArray[np.floating[Any]]


def discount_cumsum(x: NDArray[Any], gamma: float) -> FloatArray:
    """Returns the discounted sum of what follows each entry, itself included.

        y_t = x_t + gamma * y_{t+1}

    Args:
        x: Numbers `[T]` or `[T, ...]`; sums run along axis 0.
        gamma: Discount per step, in [0, 1].

    Returns:
        Same shape as `x`; its dtype where that is floating, else float64. Summed in float64.
    """
    array = np.asarray(x)
    out = array.astype(np.float64)
    if out.ndim == 1:
        out[:] = _backward_sum(out.tolist(), [gamma] * len(out))
    else:
        for t in range(len(out) - 2, -1, -1):
            out[t] += gamma * out[t + 1]
    return out.astype(array.dtype if array.dtype.kind == "f" else np.float64, copy=False)


def _backward_sum(terms: list[float], decays: list[float]) -> list[float]:
    """Returns y with y_t = terms_t + decays_t * y_{t+1}; plain floats beat NumPy scalars several times over."""
    total = 0.0
    for t in range(len(terms) - 1, -1, -1):
        total = terms[t] + decays[t] * total
        terms[t] = total
    return terms


def gae(  # noqa: PLR0913, PLR0917 - the columns of the formula, in its order
    rewards: FloatArray,
    values: FloatArray,
    next_values: FloatArray,
    terminateds: NDArray[Any],
    ends: NDArray[Any],
    gamma: float,
    lambda_: float,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Returns generalised advantage estimates and the value targets that go with them.

        delta_t = r_t + gamma * (1 - terminated_t) * V(s_{t+1}) - V(s_t)
        A_t     = delta_t + gamma * lambda * (1 - end_t) * A_{t+1}
        target_t = A_t + V(s_t)

    Args:
        rewards: r_t. Float `[T]` or `[T, B]`, B trajectories side by side.
        values: V(s_t). Same shape.
        next_values: V(s_{t+1}), of the observation that followed the action, also where the episode was truncated.
        terminateds: Nothing follows: the bootstrap is 0. bool.
        ends: Row t+1 does not continue row t (termination, truncation, another trajectory): the trace is cut. bool.
        gamma: Discount per step, in [0, 1].
        lambda_: Decay of the trace, in [0, 1]; 1 gives discounted returns, 0 one-step errors.

    Returns:
        Advantages and value targets, float32, same shape; computed in float64.

    Raises:
        ValueError: If the shapes differ.

    Source: Schulman et al. 2016, "High-Dimensional Continuous Control Using Generalized Advantage Estimation", eq. 16.
    """
    shapes = {np.shape(array) for array in (rewards, values, next_values, terminateds, ends)}
    if len(shapes) != 1:
        raise ValueError(
            f"Got rewards, values, next_values, terminateds and ends of shapes {shapes}; wanted one shape."
        )
    alive = ~np.asarray(terminateds, bool)
    decay = (gamma * lambda_) * (alive & ~np.asarray(ends, bool))
    base = np.asarray(values, np.float64)
    advantages = np.asarray(rewards, np.float64) + gamma * alive * np.asarray(next_values, np.float64) - base
    if advantages.ndim == 1:
        advantages[:] = _backward_sum(advantages.tolist(), decay.tolist())
    else:
        _trace(advantages, decay)
    return advantages.astype(np.float32), (advantages + base).astype(np.float32)


def _trace(deltas: NDArray[np.float64], decay: NDArray[np.float64]) -> None:
    """Turns one-step errors `[T, B]` into decaying sums of what follows, in place."""
    carried = np.empty_like(deltas[0]) if len(deltas) else deltas
    for t in range(len(deltas) - 2, -1, -1):
        np.multiply(decay[t], deltas[t + 1], out=carried)
        row = deltas[t]
        np.add(row, carried, out=row)


# --- of the trajectories of a batch --------------------------------------------------------------------------------


def check_critic(batch: SampleBatch, use_gae: bool, use_critic: bool) -> None:
    """Raises a ValueError where GAE is asked for without a critic, or a critic's values are not in the batch."""
    if use_gae and not use_critic:
        raise ValueError("Got use_gae=True with use_critic=False; wanted a critic: GAE is made of its values.")
    if use_critic and VF_PREDS not in batch:
        raise ValueError(f"Got a batch without {VF_PREDS!r}, with {sorted(batch)}; a critic's values must be stored.")


def compute_gae_for_sample_batch(
    policy: Any, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
) -> SampleBatch:
    """Adds `advantages` and `value_targets`, bootstrapping where trajectories were truncated or cut off.

    Only terminated trajectories bootstrap with 0; at time limits and ends of fragments V(`new_obs`) is used.

    Args:
        policy: Its `values_after(batch, rows)` `[n]` gives V of what followed; where it has a `_value(**input_dict)`
            method, that does. Its config is read for `gamma`, `lambda`, `use_gae` and `use_critic`.
        sample_batch: Any number of trajectories one after the other.
        other_agent_batches: Not used; part of the signature of postprocessing functions.
        episode: Not used; part of the signature of postprocessing functions.

    Returns:
        The same batch.

    Raises:
        ValueError: If a critic is needed and `vf_preds` is missing, or GAE is asked for without a critic.
    """
    del other_agent_batches, episode
    config = policy.config
    use_gae, use_critic = config.get("use_gae", True), config.get("use_critic", True)
    lambda_ = config["lambda"] if use_gae else 1.0
    return _add_advantages(policy, sample_batch, config["gamma"], lambda_, use_gae=use_gae, use_critic=use_critic)


def post_process_advantages(
    policy: Any, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
) -> SampleBatch:
    """Adds the discounted return to go as `advantages`; trajectories that were cut off end with what they have.

    Args:
        policy: Its config is read for `gamma`.
        sample_batch: Any number of trajectories one after the other.
        other_agent_batches: Not used; part of the signature of postprocessing functions.
        episode: Not used; part of the signature of postprocessing functions.

    Returns:
        The same batch.

    Source: Sutton and Barto 2018, section 13.3.
    """
    del other_agent_batches, episode
    return _add_advantages(policy, sample_batch, policy.config["gamma"], 1.0, use_gae=False, use_critic=False)


def _add_advantages(
    policy: Any, sample_batch: SampleBatch, gamma: float, lambda_: float, *, use_gae: bool, use_critic: bool
) -> SampleBatch:
    check_critic(sample_batch, use_gae, use_critic)

    def values_after(ends: NDArray[np.bool_], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        return values_of_next(policy, sample_batch, ends, rows)

    zeros = np.zeros(sample_batch.count, np.float32)
    values = np.asarray(sample_batch[VF_PREDS], np.float32) if use_critic else zeros
    # Returns are GAE with lambda 1 plus the values they were measured against.
    advantages, targets = gae_of_batch(sample_batch, values, values_after if use_critic else None, gamma, lambda_)
    sample_batch[ADVANTAGES] = advantages
    sample_batch[VALUE_TARGETS] = targets if use_critic else zeros
    return sample_batch


def gae_of_batch(
    batch: SampleBatch,
    values: NDArray[np.float32],
    values_after: Callable[[NDArray[np.bool_], NDArray[np.int64]], NDArray[np.float32]] | None,
    gamma: float,
    lambda_: float,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Returns advantages and value targets of trajectories that stand one after the other, float32 `[B]` each.

    Args:
        batch: The trajectories.
        values: V of each row's observation. Float32 `[B]`.
        values_after: `fn(ends, rows) -> [n]`, V of what followed the given last rows of trajectories that were cut off;
            `ends` says of each row whether it is such a last one. None takes zeros.
        gamma: Discount per step.
        lambda_: Decay of the trace.
    """
    rewards = np.asarray(batch[REWARDS], np.float32)
    ends, terminal = trajectory_ends(batch), terminal_rows(batch)
    following = np.append(values[1:], np.float32(0.0))
    if values_after is not None:
        open_ends = np.flatnonzero(ends & ~terminal)
        following[open_ends] = values_after(ends, open_ends)
    slots = _slots(batch, ends)
    by_slot: Any = (rewards, values, following, terminal, ends)
    if slots > 1:
        by_slot = [column.reshape(slots, -1).T for column in by_slot]
    r_t, v_t, v_tp1, terminal_t, end_t = by_slot
    advantages, targets = gae(r_t, v_t, v_tp1, terminal_t, end_t, gamma, lambda_)
    return advantages.T.reshape(-1), targets.T.reshape(-1)


for _function in (compute_gae_for_sample_batch, post_process_advantages):
    _function.handles_many = True  # type: ignore[attr-defined]  # one call for several trajectories
    _function.framework_free = True  # type: ignore[attr-defined]  # NumPy workers may run it


def _slots(batch: SampleBatch, ends: NDArray[np.bool_]) -> int:
    """Returns into how many equally long pieces the rows fall that all end with a trajectory: the slots sampled from.

    The trace then runs over all pieces at once instead of row by row; 1 is always right.
    """
    env_id = batch.get(ENV_ID)
    slots = 1 if env_id is None or len(env_id) == 0 else int(env_id[-1]) + 1
    length, rest = divmod(len(ends), slots)
    return slots if rest == 0 and length > 0 and bool(ends[length - 1 :: length].all()) else 1


def values_of_next(
    policy: Any, batch: SampleBatch, ends: NDArray[np.bool_], rows: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Returns V of the observations that followed the given last rows of trajectories, float32 `[n]`."""
    if len(rows) == 0:
        return np.zeros(0, np.float32)
    single = getattr(policy, "_value", None)
    if single is None or getattr(single, "is_values_after", False):
        return np.asarray(policy.values_after(batch, rows), np.float32).reshape(-1)
    from rlframe.data.own_values import value_after

    starts = np.append(0, np.flatnonzero(ends) + 1)
    found = []
    for row in rows.tolist():
        trajectory = batch[int(starts[np.searchsorted(starts, row, side="right") - 1]) : row + 1]
        inputs = trajectory.get_single_step_input_dict(policy.view_requirements, index="last")
        found.append(value_after(single, inputs, trajectory))
    return np.asarray(found, np.float32)
