"""DQN in TensorFlow: the loss (double, n-step, weighted, distributional) and the policy with its heads."""

from __future__ import annotations

from typing import Any, TypeAlias

from rlframe.agents.dqn.dqn_tf_model import QOutput
from rlframe.agents.dqn.q_policy import DQNPolicy, postprocess_nstep_and_prio
from rlframe.agents.dqn.simple_q_tf_policy import SimpleQTFPolicy
from rlframe.data.columns import ACTIONS, DISCOUNTS, NEXT_OBS, OBS, REWARDS, WEIGHTS
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.q_learning import (
    categorical_q_loss,
    double_q_td_error,
    huber,
    project_distribution,
    select_by_action,
)
from rlframe.models.tf.noisy import NoisyLayer
from rlframe.utils.quiet_tf import tf

Tensor: TypeAlias = Any


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
        self, q_t: QOutput, q_tp1: QOutput, q_tp1_selector: Tensor, batch: SampleBatch, support: Tensor | None = None
    ) -> None:
        actions, rewards, discounts = batch[ACTIONS], batch[REWARDS], batch[DISCOUNTS]
        weights = batch.get(WEIGHTS)
        if q_t.logits is None:
            td_error = double_q_td_error(q_t.q, actions, rewards, discounts, q_tp1.q, q_tp1_selector)
            per_row = huber(td_error)
        else:
            assert support is not None
            assert q_tp1.logits is not None
            best = tf.argmax(q_tp1_selector, axis=1)
            next_probs = tf.nn.softmax(select_by_action(q_tp1.logits, best))
            target = project_distribution(next_probs, rewards, discounts, support)
            per_row = td_error = categorical_q_loss(select_by_action(q_t.logits, actions), target)
        self.loss = tf.reduce_mean(per_row if weights is None else weights * per_row)
        self.td_error = tf.stop_gradient(td_error)
        q = q_t.q
        self.stats = {"mean_q": tf.reduce_mean(q), "min_q": tf.reduce_min(q), "max_q": tf.reduce_max(q)}


def build_q_losses(policy: DQNTFPolicy, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor:
    """Returns the loss of one batch, a scalar; see `DoubleQLoss`."""
    del dist_class
    q_t = policy.online(train_batch[OBS])
    q_tp1 = policy.target(train_batch[NEXT_OBS])
    selector = policy.online(train_batch[NEXT_OBS]).q if policy.selects_online else q_tp1.q
    q_loss = DoubleQLoss(q_t, q_tp1, selector, train_batch, getattr(model, "support", None))
    model.tower_stats.update(td_error=q_loss.td_error, q_loss=q_loss)
    policy.keep(td_error=q_loss.td_error, **q_loss.stats)
    return q_loss.loss


class DQNTFPolicy(DQNPolicy, SimpleQTFPolicy):
    """SimpleQ's policy with dueling, distributional and noisy heads, and priorities computed by workers."""

    def __init__(self, obs_space: Any, action_space: Any, config: dict[str, Any]) -> None:
        self._noisy_network = bool(config["noisy"])
        SimpleQTFPolicy.__init__(self, obs_space, action_space, config)
        self._noisy_layers = _noisy_layers(self.model)
        for index, layer in enumerate(self._noisy_layers):
            layer.generator = self._generator("noise", index)
        for index, layer in enumerate(_noisy_layers(self.target_network.model)):
            # The target's noise is its own draw, and on: Fortunato et al. 2018, section 3.1.
            layer.noise, layer.generator = True, self._generator("target_noise", index)

    def _generator(self, *path: int | str) -> Any:
        return tf.random.Generator.from_seed(self.stream_seed(*path) % 2**63)

    def _dist_inputs(self, batch: SampleBatch, explore: bool, step: int) -> tuple[Tensor, Any, list[Tensor]]:
        with self._noise(explore):
            return super()._dist_inputs(batch, explore, step)

    def online(self, obs: Tensor) -> QOutput:
        """Returns the online network's Q-values of `obs` [B, ...], noisy where it has noise."""
        with self._noise(True):
            return super().online(obs)

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor:
        """Returns the loss of one batch; see `DoubleQLoss`."""
        return build_q_losses(self, model, dist_class, train_batch)


def _noisy_layers(model: Any) -> list[NoisyLayer]:
    """Returns the noisy layers of a model's heads, in the order in which they were made."""
    return [value for value in vars(model).values() if isinstance(value, NoisyLayer)]


__all__ = ["DQNTFPolicy", "DoubleQLoss", "build_q_losses", "postprocess_nstep_and_prio"]
