"""Postprocessing of trajectories under RLlib's names; `data.returns` and `data.n_step` compute it."""

from __future__ import annotations

from typing import Final

import numpy as np

from rlframe.data import columns
from rlframe.data.columns import REWARDS, VF_PREDS
from rlframe.data.n_step import n_step as sum_n_steps
from rlframe.data.returns import (
    check_critic,
    compute_gae_for_sample_batch,
    discount_cumsum,
    gae,
    gae_of_batch,
    post_process_advantages,
    values_of_next,
)
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
    "values_of_next",
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
    check_critic(rollout, use_gae, use_critic)
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
