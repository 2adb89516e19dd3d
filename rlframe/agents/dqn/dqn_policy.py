"""DQN: the loss (double, n-step, weighted, distributional) and the policy with its heads, for both frameworks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rlframe.agents.dqn.q_policy import QTargetPolicy, q_heads
from rlframe.agents.dqn.simple_q_policy import SimpleQPolicy, q_stats
from rlframe.agents.families.n_step import postprocess_nstep, postprocess_nstep_and_prio
from rlframe.data.columns import ACTIONS, DISCOUNTS, NEXT_OBS, OBS, REWARDS, WEIGHTS
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.q_learning import (
    categorical_q_loss,
    double_q_td_error,
    huber,
    project_distribution,
    select_by_action,
)
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor


class DoubleQLoss:
    """The loss of one batch, its TD errors, and statistics.

    With one atom: mean of w · huber(δ), δ the n-step double-Q error. With Z atoms: mean of w · cross-entropy between
    the projected target distribution and the online one; the cross-entropy then serves as the TD error.

    Args:
        q_t: Online network at `obs`: q [B, A], logits [B, A, Z] or None.
        q_tp1: Target network at `new_obs`.
        q_tp1_selector: Q-values [B, A] at `new_obs` that choose the next action: the online network's for double
            Q-learning, the target network's otherwise.
        batch: Columns `actions`, `rewards`, `discounts`, and `weights` (ones if missing).
        support: Atoms [Z].

    Attributes:
        loss: Scalar.
        td_error: [B], without gradient.
        stats: Scalars for the report.

    Source: van Hasselt et al. 2016 (double); Schaul et al. 2016 (weights); Bellemare et al. 2017, algorithm 1 (atoms).
    """

    def __init__(
        self, q_t: Any, q_tp1: Any, q_tp1_selector: Tensor, batch: SampleBatch, support: Tensor | None = None
    ) -> None:
        actions, rewards, discounts = batch[ACTIONS], batch[REWARDS], batch[DISCOUNTS]
        weights = batch.get(WEIGHTS)
        if q_t.logits is None:
            td_error = double_q_td_error(q_t.q, actions, rewards, discounts, q_tp1.q, q_tp1_selector)
            per_row = huber(td_error)
        else:
            assert support is not None
            assert q_tp1.logits is not None
            best = ops.argmax(q_tp1_selector, axis=1)
            next_probs = ops.softmax(select_by_action(q_tp1.logits, best))
            target = project_distribution(next_probs, rewards, discounts, support)
            per_row = td_error = categorical_q_loss(select_by_action(q_t.logits, actions), target)
        self.loss = ops.mean(per_row if weights is None else weights * per_row)
        self.td_error = ops.stop_gradient(td_error)
        self.stats = q_stats(q_t.q)


def build_q_losses(policy: Any, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor:
    """Returns the loss of one batch, a scalar; see `DoubleQLoss`."""
    del dist_class
    next_obs = train_batch[NEXT_OBS]
    q_t, q_tp1 = policy.online(train_batch[OBS]), ops.without_gradient(policy.target, next_obs)
    selector = ops.without_gradient(policy.online, next_obs).q if policy.selects_online else q_tp1.q
    q_loss = DoubleQLoss(q_t, q_tp1, selector, train_batch, getattr(model, "support", None))
    model.tower_stats.update(td_error=q_loss.td_error, q_loss=q_loss)
    policy.keep(td_error=q_loss.td_error, **q_loss.stats)
    return q_loss.loss


class DQNPolicy(SimpleQPolicy):
    """SimpleQ's policy with dueling, distributional and noisy heads, and priorities computed by workers."""

    defaults_from = "rlframe.agents.dqn.dqn:DEFAULT_CONFIG"

    learn_columns = (*SimpleQPolicy.learn_columns, WEIGHTS)
    selects_online = QTargetPolicy.selects_online

    def _learned_columns(self, samples: SampleBatch) -> SampleBatch:
        if WEIGHTS not in samples:  # a batch that comes from no replay buffer
            samples = samples.copy(shallow=True)
            samples[WEIGHTS] = np.ones(samples.count, np.float32)
        return super()._learned_columns(samples)

    #: The online network's noisy layers.
    _noisy_layers: Sequence[Any] = ()

    @contextlib.contextmanager
    def _noise(self, on: bool) -> Iterator[None]:
        """A context in which the online network's noise is on or off; outside of it, it is as the framework has it."""
        for layer in self._noisy_layers:
            layer.noise = on
        try:
            yield
        finally:
            for layer in self._noisy_layers:
                layer.noise = None

    def head_config(self) -> dict[str, Any]:
        """Returns what the heads are built with."""
        return q_heads(self.config)

    def postprocess_trajectory(
        self, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
    ) -> SampleBatch:
        """Sums n-step rewards; with `worker_side_prioritization` adds initial priorities |δ| as `weights`."""
        return postprocess_nstep_and_prio(self, sample_batch, other_agent_batches, episode)

    postprocess_trajectory.framework_free = postprocess_nstep  # type: ignore[attr-defined]  # a marker for NumPy workers

    def online(self, obs: Tensor) -> Any:
        """Returns the online network's `QOutput` of `obs` [B, ...], noisy where it has noise."""
        with self._noise(True):
            return super().online(obs)

    def _dist_inputs(self, batch: SampleBatch, explore: bool, step: int) -> tuple[Tensor, Any, list[Tensor]]:
        with self._noise(explore):
            return super()._dist_inputs(batch, explore, step)

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor:
        """Returns the loss of one batch; see `DoubleQLoss`."""
        return build_q_losses(self, model, dist_class, train_batch)
