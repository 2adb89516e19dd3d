"""V-trace in PyTorch under RLlib's name, on columns `[T, B]`; policies use `rlframe.losses.vtrace`, on rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rlframe.losses.vtrace import vtrace


class VTraceReturns(NamedTuple):
    """Value targets v_s and advantages of the policy gradient, float `[T, B]` each."""

    vs: Tensor
    pg_advantages: Tensor


def from_importance_weights(
    log_rhos: Tensor,
    discounts: Tensor,
    rewards: Tensor,
    values: Tensor,
    bootstrap_value: Tensor,
    clip_rho_threshold: float | None = 1.0,
    clip_pg_rho_threshold: float | None = 1.0,
) -> VTraceReturns:
    """Returns V-trace of B trajectories side by side.

    Args:
        log_rhos: log π/μ of the actions taken. Float `[T, B]`.
        discounts: γ(1 − terminated). Float `[T, B]`.
        rewards: Float `[T, B]`.
        values: V(s_t). Float `[T, B]`.
        bootstrap_value: V(s_T). Float `[B]`.
        clip_rho_threshold: ρ̄; None does not clip.
        clip_pg_rho_threshold: ρ̄_pg; None does not clip.

    Source: Espeholt et al. 2018, eq. 1.
    """
    steps, _ = values.shape
    following = torch.cat([values[1:], bootstrap_value[None]])
    ends = torch.zeros_like(values, dtype=torch.bool)
    ends[steps - 1 :] = True
    logp, r_t, v_t, v_tp1, discount_t, end_t = _rows([log_rhos, rewards, values, following, discounts, ends])
    clips = (clip_rho_threshold, clip_pg_rho_threshold)
    made = vtrace(logp, torch.zeros_like(logp), r_t, v_t, v_tp1, discount_t, end_t, *clips)
    return VTraceReturns(*(row.reshape(-1, steps).T for row in made))


def _rows(columns: Sequence[Tensor]) -> list[Tensor]:
    """Returns `[T, B]` as rows `[B · T]`, trajectory after trajectory."""
    return [column.T.reshape(-1) for column in columns]


__all__ = ["VTraceReturns", "from_importance_weights"]
