"""R2D2: the policy, DQN's with a memory, for both frameworks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rlframe.agents.dqn.dqn_policy import DQNPolicy, double_q_loss
from rlframe.agents.families.users_losses import called_as_in_rllib, means_kept
from rlframe.data.sample_batch import SampleBatch
from rlframe.policy.backends import lazy_policies
from rlframe.policy.parts import Component, LossOutput
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor
from rlframe.utils.errors import ConfigError

if TYPE_CHECKING:
    from rlframe.agents.dqn.r2d2 import R2D2Config


class R2D2Policy(DQNPolicy):
    """A recurrent Q-network that learns from sequences, and values as h(value).

        δ_t = Q(h_t, a_t) − h( Σ_{i<k} γ^i r_{t+i} + γ^k h⁻¹( Q⁻(h_{t+k}, argmax_a Q(h_{t+k}, a)) ) )

    h_t is the memory at step t, from the state that the sequence began with and, behind it, burn-in, through which no
    gradient flows. k is `n_step`, or what is left of the sequence.

    Source: Kapturowski et al. 2019, "Recurrent Experience Replay in Distributed Reinforcement Learning", section 2.3.
    """

    config: R2D2Config
    defaults_from = "rlframe.agents.dqn.r2d2:DEFAULT_CONFIG"

    def prepare(self) -> None:
        """Checks the action space, and settles whether values are rescaled."""
        super().prepare()
        self.h_epsilon = float(self.config.h_function_epsilon) if self.config.use_h_function else None

    def make_components(self) -> dict[str, Component]:
        """Returns what DQN has; raises a ConfigError where the model has no memory."""
        if not self.is_recurrent():
            raise ConfigError(
                f"model: got {type(self.model).__name__} without a memory, but R2D2 learns from sequences; set "
                "model.use_lstm or model.use_attention to True, give a custom_model whose get_initial_state() is not "
                "empty, or take DQN"
            )
        return super().make_components()

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
        """Returns the loss of one batch of sequences; see above."""
        return _sequence_loss(self, model, dist_class, train_batch)

    def extra_grad_info(self, train_batch: SampleBatch) -> dict[str, Any]:
        """Returns what DQN does, also where a loss of the user's own left it as RLlib's did."""
        left = means_kept(self, *_KEPT) | vars(self).get("_loss_stats", {})  # in TensorFlow it was a dict
        return {**left, **super().extra_grad_info(train_batch)}


_KEPT = ("total_loss", "mean_td_error", "mean_q", "min_q", "max_q")


def _sequence_loss(policy: Any, model: Any, dist_class: Any, batch: SampleBatch) -> LossOutput:
    del dist_class
    output = double_q_loss(policy, model, batch)
    told = {"total_loss": ops.stop_gradient(output.losses), "mean_td_error": ops.mean(output.per_row["td_error"])}
    return replace(output, stats={**told, **output.stats})


def r2d2_loss(policy: Any, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor:
    """Returns the loss of one batch of sequences, a scalar; the policy keeps the rest. See `R2D2Policy`."""
    names = {name: (name,) for name in _KEPT}
    loss: Tensor = called_as_in_rllib(_sequence_loss, (policy, model, dist_class, train_batch), names)
    return loss


__getattr__ = lazy_policies(__name__, R2D2Policy, R2D2TorchPolicy="torch", R2D2TFPolicy="tf")
