"""TD3+BC: TD3's losses with an actor, and with ReBRAC's options critics, that stay near the data; both frameworks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlframe.agents.ddpg.ddpg_policy import DDPGPolicy
from rlframe.agents.families.offline import NEXT_ACTIONS, NEXT_ACTIONS_KNOWN, with_next_actions
from rlframe.data.columns import ACTIONS
from rlframe.data.n_step import with_discounts
from rlframe.data.sample_batch import SampleBatch
from rlframe.models.spec import Initial, Layer, dense_layers
from rlframe.policy.backends import lazy_policies
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor

if TYPE_CHECKING:
    from rlframe.agents.ddpg.td3_bc import TD3BCConfig


class TD3BCPolicy(DDPGPolicy):
    """TD3 whose actor, and with ReBRAC's options critics too, stay near the actions in the data.

        critics:  y = r + γⁿ(1 − d) · [ min_i Q⁻_i(s', ã) − β₂ D(ã, a') ],   ã = μ⁻(s') + clipped noise
        actor:    mean[ β₁ D(μ(s), a) − α Q_1(s, μ(s)) / q ],   q = mean |Q_1(s, μ(s))|, a constant
        D(a, b) = mean over components of (a − b)²

    a' is what was done in s', where the data have that step; elsewhere D(ã, a') is 0.

    Source: Fujimoto & Gu 2021, "A Minimalist Approach to Offline Reinforcement Learning", eqs. 3 to 5; Tarasov et al.
    2023, "Revisiting the Minimalist Approach to Offline Reinforcement Learning", eqs. 4 and 5 (ReBRAC).
    """

    config: TD3BCConfig
    defaults_from = "rlframe.agents.ddpg.td3_bc:TD3_BC_DEFAULT_CONFIG"
    encoder_may_remember = False

    def prepare(self) -> None:
        """Has learning read the actions that follow, where critics are compared with them."""
        super().prepare()
        if self.config.critic_bc_weight and self.learn_columns:  # none are named for a user's own loss
            self.learn_columns = (*self.learn_columns, NEXT_ACTIONS, NEXT_ACTIONS_KNOWN)

    def complete_columns(self, batch: SampleBatch) -> SampleBatch:
        """Returns the batch with `discounts`, and with the actions that follow where they count and are not there."""
        batch = with_discounts(self, batch)
        return batch if not self.config.critic_bc_weight or NEXT_ACTIONS in batch else with_next_actions(batch)

    complete_batch = complete_columns

    def critic_layers(self) -> tuple[Layer, ...]:
        """Returns the critics' hidden layers, normalised where `critic_layer_norm` says so."""
        config = self.config
        activation, norm = config.critic_hidden_activation, config.critic_layer_norm
        initial = Initial(config.initial_weights)
        return dense_layers(config.critic_hiddens, activation, initial=initial, layer_norm=norm)

    def trusted(self, value: Tensor, actions: Tensor, steps: SampleBatch) -> Tensor:
        """Returns what is left of next actions' value [B], less β₂ times their distance from the data's."""
        weight = self.config.critic_bc_weight
        if not weight:
            return value
        return value - weight * steps[NEXT_ACTIONS_KNOWN] * squared_distance(actions, steps[NEXT_ACTIONS])

    def actor_loss(self, model: Any, features: Tensor, steps: SampleBatch, mean: Callable[[Tensor], Tensor]) -> Tensor:
        """Returns the distance from the data's actions less the value in units of its mean size, a scalar."""
        own = model.actor(features)
        value = model.q(features, own, frozen=True)[:, 0]
        size = ops.stop_gradient(mean(ops.abs(value))) + 1e-8
        distance = mean(squared_distance(own, steps[ACTIONS]))
        return self.config.actor_bc_weight * distance - self.config.value_weight * mean(value) / size


def squared_distance(actions: Tensor, others: Tensor) -> Tensor:
    """Returns the mean over components of squared differences of actions `[B, A]`. Float `[B]`."""
    return ops.mean(ops.square(actions - others), axis=1)


__getattr__ = lazy_policies(__name__, TD3BCPolicy, TD3BCTorchPolicy="torch", TD3BCTFPolicy="tf")
