"""V-trace in TensorFlow under RLlib's name, on columns `[T, B]`; policies use `rlframe.losses.vtrace`, on rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from rlframe.losses.vtrace import vtrace
from rlframe.utils.quiet_tf import tf

Tensor: TypeAlias = Any


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
    name: str | None = None,
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
        name: Not used: of a scope in TensorFlow 1's graphs.

    Source: Espeholt et al. 2018, eq. 1.
    """
    del name
    steps = tf.shape(values)[0]
    following = tf.concat([values[1:], bootstrap_value[None]], 0)
    ends = tf.repeat((tf.range(steps) == steps - 1)[:, None], tf.shape(values)[1], axis=1)
    logp, r_t, v_t, v_tp1, discount_t, end_t = _rows([log_rhos, rewards, values, following, discounts, ends])
    clips = (clip_rho_threshold, clip_pg_rho_threshold)
    made = vtrace(logp, tf.zeros_like(logp), r_t, v_t, v_tp1, discount_t, end_t, *clips)
    return VTraceReturns(*(tf.transpose(tf.reshape(row, [-1, steps])) for row in made))


def _rows(columns: Sequence[Tensor]) -> list[Tensor]:
    """Returns `[T, B]` as rows `[B · T]`, trajectory after trajectory."""
    return [tf.reshape(tf.transpose(column), [-1]) for column in columns]


__all__ = ["VTraceReturns", "from_importance_weights"]
