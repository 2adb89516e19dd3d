"""Postprocessing of trajectories under RLlib's names: advantages, value targets and n-step transitions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlframe.data import columns
from rlframe.data.column_dict import terminal_rows, trajectory_ends
from rlframe.data.columns import ACTIONS, OBS, REWARDS, STATE_IN_PREFIX, VF_PREDS
from rlframe.data.n_step import n_step as sum_n_steps
from rlframe.data.nested import map_nested
from rlframe.data.returns import discount_cumsum, gae
from rlframe.data.sample_batch import SampleBatch
from rlframe.utils.deprecation import deprecation_warning

__all__ = [
    "Postprocessing",
    "adjust_nstep",
    "compute_advantages",
    "compute_gae_for_sample_batch",
    "discount_cumsum",
    "gae_of_batch",
    "post_process_advantages",
]


class Postprocessing:
    """Names of the columns that postprocessing adds."""

    ADVANTAGES: Final = columns.ADVANTAGES
    VALUE_TARGETS: Final = columns.VALUE_TARGETS


def adjust_nstep(n_step: int, gamma: float, batch: SampleBatch) -> None:
    """Turns single-step transitions into n-step ones, in place; see `rlframe.data.n_step.n_step`.

    Args:
        n_step: Rewards to sum, in environment steps.
        gamma: Discount per step.
        batch: Any number of trajectories.
    """
    sum_n_steps(batch, n_step, gamma)


def compute_advantages(
    rollout: SampleBatch,
    last_r: float,
    gamma: float = 0.9,
    lambda_: float = 1.0,
    use_gae: bool = True,
    use_critic: bool = True,
) -> SampleBatch:
    """Adds `advantages` and `value_targets` to one trajectory.

    Args:
        rollout: One trajectory with `rewards`, and `vf_preds` where a critic is used.
        last_r: What follows the last row: V of its `new_obs`, or 0 where it terminated; in env reward units.
        gamma: Discount per step.
        lambda_: Decay of the trace, with `use_gae`.
        use_gae: Generalised advantage estimates; False takes discounted returns.
        use_critic: Subtract `vf_preds` from the returns, where the batch has them: programs of RLlib 0.8 have neither
            GAE nor a critic, and say nothing of it. Without, the value targets are zeros.

    Returns:
        The same batch; both columns are float32 `[B]`.

    Raises:
        ValueError: If `vf_preds` is missing with `use_gae`, or GAE is asked for without a critic.
    """
    if use_critic and not use_gae and VF_PREDS not in rollout:
        deprecation_warning(
            "compute_advantages(use_gae=False) of a batch without vf_preds", help="Say use_critic=False."
        )
        use_critic = False
    _check_critic(rollout, use_gae, use_critic)
    rewards = np.asarray(rollout[REWARDS], np.float32)
    if use_gae:
        values = np.asarray(rollout[VF_PREDS], np.float32)
        following = np.append(values[1:], np.float32(last_r))
        never = np.zeros(len(rewards), bool)
        advantages, targets = gae(rewards, values, following, never, never, gamma, lambda_)
    else:
        returns = discount_cumsum(np.append(rewards, np.float32(last_r)), gamma)[:-1].astype(np.float32)
        values = np.asarray(rollout[VF_PREDS], np.float32) if use_critic else np.zeros_like(returns)
        advantages, targets = returns - values, returns if use_critic else np.zeros_like(returns)
    rollout[Postprocessing.ADVANTAGES] = advantages
    rollout[Postprocessing.VALUE_TARGETS] = targets
    return rollout


def _check_critic(batch: SampleBatch, use_gae: bool, use_critic: bool) -> None:
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
    _check_critic(sample_batch, use_gae, use_critic)

    def values_after(ends: NDArray[np.bool_], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        return values_of_next(policy, sample_batch, ends, rows)

    zeros = np.zeros(sample_batch.count, np.float32)
    values = np.asarray(sample_batch[VF_PREDS], np.float32) if use_critic else zeros
    # Returns are GAE with lambda 1 plus the values they were measured against.
    advantages, targets = gae_of_batch(sample_batch, values, values_after if use_critic else None, gamma, lambda_)
    sample_batch[Postprocessing.ADVANTAGES] = advantages
    sample_batch[Postprocessing.VALUE_TARGETS] = targets if use_critic else zeros
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
    env_id = batch.get(SampleBatch.ENV_ID)
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
    starts = np.append(0, np.flatnonzero(ends) + 1)
    found = []
    for row in rows.tolist():
        trajectory = batch[int(starts[np.searchsorted(starts, row, side="right") - 1]) : row + 1]
        inputs = trajectory.get_single_step_input_dict(policy.view_requirements, index="last")
        args, kwargs = _as_declared(single, inputs, trajectory)
        found.append(float(np.asarray(single(*args, **kwargs)).reshape(-1)[0]))
    return np.asarray(found, np.float32)


def _as_declared(single: Callable[..., Any], inputs: SampleBatch, trajectory: SampleBatch) -> tuple[list[Any], Any]:
    """Returns the arguments of a program's `_value`: columns by name, or up to RLlib 1.0 one row in its order.

    That is the observation, the action and the reward before it, and states, without a batch's axis.
    """
    signature = inspect.signature(single)
    try:
        signature.bind(**inputs)
    except TypeError:
        names = [f"{STATE_IN_PREFIX}{index}" for index in range(len(inputs))]
        states = [inputs[name][0] for name in names if name in inputs]
        row = [map_nested(lambda leaf: leaf[0], inputs[OBS]), trajectory[ACTIONS][-1], trajectory[REWARDS][-1], *states]
        kinds = [parameter.kind for parameter in signature.parameters.values()]
        return (row if inspect.Parameter.VAR_POSITIONAL in kinds else row[: len(kinds)]), {}
    return [], inputs
