"""SimpleQ: the loss and the policy of the original deep Q-network, for both frameworks."""

from __future__ import annotations

from typing import Any

from rlframe.agents.dqn.dqn_policy import DQNPolicy, q_stats
from rlframe.agents.dqn.step_values import step_values
from rlframe.agents.families.replayed_sequences import td_errors_to_replay
from rlframe.data.columns import ACTIONS, DISCOUNTS, NEXT_OBS, OBS, REWARDS
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.masking import valid_mean, valid_rows
from rlframe.losses.q_learning import huber, select_by_action
from rlframe.policy.backends import lazy_policies
from rlframe.policy.parts import LossOutput, kept
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor


def simple_q_loss(policy: Any, model: Any, batch: SampleBatch) -> LossOutput:
    """Returns the mean Huber loss of the one-step temporal-difference error, TD errors and statistics.

        δ = Q(s, a) − [ r + γ (1 − terminated) · max_a' Q⁻(s', a') ]

    Source: Mnih et al. 2015, "Human-level control through deep reinforcement learning", algorithm 1.
    """
    q_t, q_tp1, _, steps = step_values(policy, batch)
    target = steps[REWARDS] + steps[DISCOUNTS] * ops.max(q_tp1.q, axis=1)
    taken = select_by_action(q_t.q, steps[ACTIONS])
    errors = taken - target
    td_error = td_errors_to_replay(policy, errors, steps)
    model.tower_stats["td_error"] = ops.stop_gradient(td_error)
    loss = valid_mean(steps)(huber(errors))
    stats = {"loss": ops.stop_gradient(loss), **q_stats(valid_rows(steps)(taken))}
    return LossOutput(loss, stats, {"td_error": td_error})


def build_q_losses(policy: Any, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor:
    """Returns the loss of one batch, a scalar; the policy keeps the rest. See `simple_q_loss`."""
    del dist_class
    return kept(policy, simple_q_loss(policy, model, train_batch))


class SimpleQPolicy(DQNPolicy):
    """DQN without heads, importance weights and double Q-learning: outputs of the network are the Q-values."""

    defaults_from = "rlframe.agents.dqn.simple_q:DEFAULT_CONFIG"
    learn_columns = (OBS, ACTIONS, REWARDS, NEXT_OBS, DISCOUNTS)
    selects_online = False  # whatever the config says of double_q
    fused_gradients = DQNPolicy.fused_gradients  # knows this loss, too

    def head_config(self) -> dict[str, Any]:
        """Returns what the heads are built with: none."""
        return {"q_hiddens": (), "dueling": False}

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
        """Returns the loss of one batch; see `simple_q_loss`."""
        del dist_class
        return simple_q_loss(self, model, train_batch)

    def extra_grad_process(self, optimizer: Any, loss: Tensor) -> dict[str, Any]:
        """Returns what is reported of a step, and the loss, which comes from here where gradients are made by hand."""
        reported: dict[str, Any] = super().extra_grad_process(optimizer, loss)  # type: ignore[misc]  # of PyTorch's policies
        return {**reported, "loss": ops.stop_gradient(loss)}


__getattr__ = lazy_policies(__name__, SimpleQPolicy, SimpleQTorchPolicy="torch", SimpleQTFPolicy="tf")
