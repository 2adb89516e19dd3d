"""IQL: networks, optimisers and losses, for continuous and discrete actions; once for both frameworks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rlframe.agents.families.actor_critic_networks import (
    action_size,
    check_normalized,
    encoder_config,
    is_discrete,
    network_of,
    refuse_action_mask,
)
from rlframe.agents.families.td_errors import td_error_of
from rlframe.data.columns import ACTIONS, DISCOUNTS, NEXT_OBS, OBS, REWARDS
from rlframe.data.n_step import (
    SAMPLED_COLUMNS,
    postprocess_replayed,
    with_discounts,
)
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.actor_critic import bootstrapped, smallest
from rlframe.losses.offline import expectile_loss, limited_weights
from rlframe.losses.q_learning import select_by_action
from rlframe.models.spec import AppendBias, Dense, Network, Part
from rlframe.policy.backends import lazy_policies
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.parts import AdamSpec, LossOutput
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor

if TYPE_CHECKING:
    from rlframe.agents.iql.iql import IQLConfig


class IQLPolicy(LearningPolicy):
    """Values of the better actions in the data, critics, and an actor that imitates the better actions.

        A = min_i Q⁻_i(s, a) − V(s)
        values:   |τ − 1[A < 0]| A²
        critics:  y = r + γⁿ(1 − d) V(s'),   ½ (Q_i(s, a) − y)²
        actor:    −min(exp(β A), w) log π(a|s),   A without gradient

    No loss asks for the value of an action that is not in the data. Actions of a Box are Gaussian, with means in
    [−1, 1] and deviations that do not depend on the observation.

    Source: Kostrikov et al. 2022, "Offline Reinforcement Learning with Implicit Q-Learning", eqs. 5 to 7.
    """

    config: IQLConfig
    defaults_from = "rlframe.agents.iql.iql:DEFAULT_CONFIG"
    train_columns = SAMPLED_COLUMNS
    learn_columns = (OBS, ACTIONS, REWARDS, NEXT_OBS, DISCOUNTS)
    complete_columns = complete_batch = with_discounts
    compute_td_error = td_error_of
    postprocess_trajectory = postprocess_replayed

    def prepare(self) -> None:
        """Checks the spaces, and settles how many critics there are."""
        space, self.discrete = self.action_space, is_discrete(self.action_space)
        self.action_size = action_size("IQL", space)
        if self.discrete:
            refuse_action_mask("IQL", self, self.action_size)
        else:
            check_normalized("IQL", space, self.config)
        self.critic_names = ("q", "twin_q") if self.config.twin_q else ("q",)
        self.target_networks = (*self.critic_names, "encoder")

    def encoder(self) -> dict[str, Any] | None:
        """Returns what observations that are no vectors pass through first, which learns with the critics."""
        return encoder_config(self, self.config.Q_model)

    def networks(self) -> Mapping[str, Part]:
        """Returns actor, critics and values."""
        config, size = self.config, self.action_size
        initial, sections = config.initial_weights, (config.Q_model, config.policy_model)
        seen, outputs = ({}, size) if self.discrete else ({ACTIONS: size}, 1)
        critic = network_of(self, sections[0], seen, outputs, initial=initial)
        return {
            "actor": self._actor(sections[1], initial),
            **dict.fromkeys(self.critic_names, critic),
            "value": network_of(self, sections[0], {}, 1, initial=initial),
        }

    def _actor(self, section: Mapping[str, Any], initial: str) -> Part:
        """Returns the actor: logits, or means within bounds beside free deviations; of a custom model, its outputs."""
        if self.discrete or section.get("custom_model"):
            return network_of(self, section, {}, self.action_size * (1 if self.discrete else 2), initial=initial)
        made = network_of(self, section, {}, self.action_size, initial=initial)
        assert isinstance(made, Network)
        head = made.layers[-1]
        assert isinstance(head, Dense)
        free = AppendBias("free_log_std", self.action_size)
        return replace(made, layers=(*made.layers[:-1], replace(head, activation="tanh"), free))

    def optimizers(self) -> Mapping[str, AdamSpec]:
        """Returns an Adam each for the actor, the critics and the values."""
        config = self.config
        clip, critics = config.grad_clip, (*self.critic_names, *(["encoder"] if self.encoder() else []))
        return {
            "actor": AdamSpec(("actor",), config.actor_lr, grad_clip=clip),
            "critic": AdamSpec(critics, config.critic_lr, grad_clip=clip),
            "value": AdamSpec(("value",), config.critic_lr, grad_clip=clip),
        }

    def critics(self, networks: Any, seen: Tensor, actions: Tensor) -> list[Tensor]:
        """Returns each critic's values of actions, `[B]`."""
        made = [getattr(networks, name) for name in self.critic_names]
        if self.discrete:
            return [select_by_action(critic(seen), actions) for critic in made]
        return [critic(seen, actions)[:, 0] for critic in made]

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
        """Returns the losses of actor, critics and values; the equations are those of the class."""
        config, actions, target = self.config, train_batch[ACTIONS], self.target_model
        seen = model.encode(train_batch[OBS], training=True)
        features = ops.stop_gradient(seen)
        best = ops.without_gradient(
            lambda obs: smallest(self.critics(target, target.encode(obs), actions)), train_batch[OBS]
        )
        values = model.value(features)[:, 0]
        advantages = best - values
        next_values = ops.without_gradient(lambda obs: model.value(model.encode(obs))[:, 0], train_batch[NEXT_OBS])
        targets = bootstrapped(train_batch[REWARDS], train_batch[DISCOUNTS], next_values)
        errors = [value - targets for value in self.critics(model, seen, actions)]
        weights = limited_weights(ops.stop_gradient(advantages), config.beta, config.largest_weight)
        dist = dist_class(model.actor(features), model)
        squares = [0.5 * ops.mean(ops.square(error)) for error in errors]
        losses = {
            "actor": -ops.mean(weights * dist.logp(actions)),
            "critic": sum(squares[1:], start=squares[0]),
            "value": ops.mean(expectile_loss(advantages, config.expectile)),
        }
        sizes = [ops.abs(ops.stop_gradient(error)) for error in errors]
        td_error = sum(sizes[1:], start=sizes[0]) / len(sizes)
        stats = {
            "actor_loss": losses["actor"],
            "critic_loss": losses["critic"] / len(errors),
            "value_loss": losses["value"],
            "mean_q": ops.mean(best),
            "max_q": ops.max(best),
            "min_q": ops.min(best),
            "mean_value": ops.mean(values),
            "mean_weight": ops.mean(weights),
            "entropy": ops.mean(dist.entropy()),
        }
        report = {name: ops.stop_gradient(value) for name, value in stats.items()}
        return LossOutput(losses, report, {"td_error": td_error})


__getattr__ = lazy_policies(__name__, IQLPolicy, IQLTorchPolicy="torch", IQLTFPolicy="tf")
