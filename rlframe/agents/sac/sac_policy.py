"""SAC: networks, optimisers and losses, for continuous and discrete actions, in both frameworks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.agents.families.actor_critic_networks import network_of, remembering_encoder_config, settle_action_space
from rlframe.agents.families.own_model import distribution_of_features, own_weights
from rlframe.agents.families.replayed_sequences import (
    histories,
    prepare_sequences,
)
from rlframe.agents.families.td_errors import error_loss, td_error_left, td_error_of
from rlframe.agents.families.users_losses import means_kept, parts_left
from rlframe.agents.sac.sac_losses import actor_critic_loss, sum_of
from rlframe.agents.sac.sac_model import (
    SACModelMethods,
    build_sac_model_and_action_dist,
    is_own,
    log_of_alpha,
)
from rlframe.data.columns import ACTIONS
from rlframe.data.n_step import (
    LOSS_COLUMNS,
    SAMPLED_COLUMNS,
    postprocess_replayed,
    with_discounts,
    with_discounts_and_weights,
)
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.actor_critic import (
    quantile_huber,
    smallest,
    truncated_quantiles,
)
from rlframe.models.spec import Part, Variable
from rlframe.policy.backends import lazy_policies
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.parts import WHOLE_MODEL, AdamSpec, Component, FusedGradients, LossOutput
from rlframe.policy.policy import FollowsModel
from rlframe.policy.variable_numbers import GlobalStep
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor
from rlframe.utils.errors import ConfigError

if TYPE_CHECKING:
    from rlframe.agents.sac.sac import SACConfig

#: Standard normal noise of the actions that losses draw, `[B, A]`: for observations, and for the next ones.
NOISE, NEXT_NOISE = "action_noise", "next_action_noise"


class SACPolicy(LearningPolicy):
    """An actor that maximises return and entropy, critics, and the entropy's weight α.

        critics:  y = r + γⁿ(1 − d) · [ min_i Q⁻_i(s', a') − α log π(a'|s') ],   a' ~ π(·|s');   ½ (Q_i(s, a) − y)²
        actor:    E_{a ~ π} [ α log π(a|s) − min_i Q_i(s, a) ]
        α:        −log α · (log π(a|s) + H̄)

    With `use_huber`, as RLlib has it, the critics' losses are Huber's. For discrete actions expectations over π take
    the place of draws. With `n_quantiles` critics tell quantiles of the return, of which targets leave out the largest
    (TQC).

    Source: Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications", eqs. 5, 9, 18; Christodoulou 2019
    (discrete); Kuznetsov et al. 2020 (TQC); Bhatt et al. 2024 (CrossQ).
    """

    config: SACConfig
    global_step: Any = GlobalStep()
    discrete: bool
    action_size: int
    defaults_from = "rlframe.agents.sac.sac:DEFAULT_CONFIG"
    train_columns = SAMPLED_COLUMNS
    learn_columns = LOSS_COLUMNS
    complete_columns, complete_batch = with_discounts, with_discounts_and_weights
    compute_td_error = td_error_of
    postprocess_trajectory = postprocess_replayed
    padded_sequences = histories
    encoder_may_remember = True
    noise_columns: tuple[str, ...] = (NOISE, NEXT_NOISE)
    noiseless_key = "_deterministic_loss"
    #: Whether the loss reads a model of the program's own in place of the networks.
    takes_own_model = True
    left_names: tuple[str, ...] = ("actor_loss", "critic_loss", "alpha_loss", "policy_t")
    fused_gradients: FusedGradients | None = FusedGradients(
        {"torch": "rlframe.agents.families.dense_actor_critic_torch:DenseSACGradients"},
        ("loss", "critic_loss", "critics", "target_value", "entropy_bonus", "output", "keep"),
    )

    # --- what it consists of ----------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Settles by the action space which SAC this is."""
        settle_action_space("SAC", self)
        config = self.config
        if self.discrete:
            self.noise_columns = ()
        if self.discrete and config.n_quantiles > 1:
            raise ConfigError(
                f"n_quantiles: got {config['n_quantiles']} with the action space {self.action_space}; wanted 1: "
                "critics of discrete actions tell expected returns"
            )
        count = config.n_critics or 1 + bool(config.twin_q)
        self.critic_names = ("q", "twin_q", *[f"q_{index}" for index in range(2, count)])[:count]
        self.target_networks = (*self.critic_names, "encoder") if config.use_target_network else ()
        entropy = config.target_entropy
        auto = 0.98 * math.log(self.action_size) if self.discrete else -float(self.action_size)
        self.target_entropy = auto if entropy in ("auto", None) else float(entropy)

    def encoder(self) -> dict[str, Any] | None:
        """Returns what observations that are no vectors pass through first: the critics' convolutions.

        Nothing where actor and critics are models of the program's own that see observations alone, as they are.
        """
        found = remembering_encoder_config(self, self.config.Q_model)
        model, networks = self.config.model, (self.config.Q_model, self.config.policy_model)
        if model.custom_model or model.use_lstm or model.use_attention or not self.discrete:
            return found
        return None if all(network.custom_model for network in networks) else found

    def section_behind(self, name: str) -> Mapping[str, Any]:
        """Returns the section of the config that describes a network behind the encoder."""
        section: Mapping[str, Any] = self.config[name]
        return section

    def networks(self) -> Mapping[str, Part]:
        """Returns actor, critics and log α."""
        config, size = self.config, self.action_size
        outputs, quantiles = (size, size) if self.discrete else (2 * size, 1)
        quantiles *= config.n_quantiles
        seen = {} if self.discrete else {ACTIONS: size}
        normed, initial = config.critic_batch_norm, config.initial_weights
        behind = self.section_behind("Q_model"), self.section_behind("policy_model")
        critic = network_of(self, behind[0], seen, quantiles, batch_norm=normed, initial=initial)
        return {
            "actor": network_of(self, behind[1], {}, outputs, initial=initial),
            **dict.fromkeys(self.critic_names, critic),
            "log_alpha": Variable(log_of_alpha(config.initial_alpha)),
        }

    def optimizers(self) -> Mapping[str, AdamSpec]:
        """Returns an Adam each for the actor, for all critics, and for log α."""
        rates, clip = self.config.optimization, self.config.grad_clip
        critics = (*self.critic_names, *(["encoder"] if self.encoder() else []))
        learns = bool(self.config.initial_alpha)  # 0 stays 0
        alpha_rate = rates["entropy_learning_rate"] if learns else 0.0
        return {
            "actor": AdamSpec(("actor",), rates["actor_learning_rate"], eps=1e-7, grad_clip=clip),
            "critic": AdamSpec(critics, rates["critic_learning_rate"], eps=1e-7, grad_clip=clip),
            "alpha": AdamSpec(("log_alpha",), alpha_rate, eps=1e-7, grad_clip=clip, follows_schedule=learns),
        }

    def make_components(self) -> dict[str, Component]:
        """Returns what reads the model's target entropy; has workers cut the rows of a memory into sequences."""
        prepare_sequences(self)
        if self.has_own_model:
            self.fused_gradients = None
            self._action_distribution_fn = self._action_distribution_fn or distribution_of_features
        else:  # what copies of RLlib's loss ask its model for
            self.model.discrete = self.discrete
            self.model.target_entropy = self.to_tensors(np.array([self.target_entropy], np.float32))
        return {"target_entropy": FollowsModel(self, "target_entropy")}

    def losses_in_turn(self, losses: list[Any]) -> list[Any]:
        """Returns the losses with one of all critics, of those of RLlib's policy: its critics had an optimiser each.

        In TensorFlow its loss was the sum, and left them on the policy.
        """
        count = len(self.critic_names)
        parts = parts_left(self, losses, "actor_loss", "critic_loss", "alpha_loss")
        losses = [part for each in parts for part in (each if isinstance(each, (list, tuple)) else [each])]
        if len(losses) != len(self.optimizer_specs) + count - 1:
            return losses
        return [losses[0], sum(losses[1 : 1 + count]), *losses[1 + count :]]

    # --- a model of the program's own in place of the networks ------------------------------------------------

    @property
    def has_own_model(self) -> bool:
        """Whether the model is a program's `SACTorchModel` or `SACTFModel`."""
        return isinstance(self.model, SACModelMethods)

    def make_model_and_dist(self) -> tuple[Any, Any]:
        """Returns the networks, or a model of the program's own, and the distribution class."""
        if not is_own(self):
            return super().make_model_and_dist()
        return build_sac_model_and_action_dist(self, self.observation_space, self.action_space, self.config)

    def weights_of(self, networks: tuple[str, ...]) -> dict[str, Any]:
        """Returns the weights of some networks, in the framework's tensors, by name."""
        if not self.has_own_model:
            return super().weights_of(networks)
        return own_weights(self.model, networks)

    def _make_target_network(self, names: tuple[str, ...]) -> None:
        make: Any = super()
        make._make_target_network(WHOLE_MODEL if self.has_own_model else names)  # the framework's

    # --- losses -----------------------------------------------------------------------------------------------

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
        """Returns the losses of actor, critics and α; see `actor_critic_loss`."""
        return actor_critic_loss(self, model, dist_class, train_batch)

    def critic_loss(
        self,
        values: list[Tensor],
        targets: Tensor,
        weights: Tensor | None,
        mean: Callable[[Tensor], Tensor] = ops.mean,
    ) -> tuple[Tensor, Tensor]:
        """Returns the critics' summed losses, a scalar, and the mean size of their TD errors `[B]`.

        Args:
            values: Of each critic, for the actions taken. Float `[B]`, or `[B, M]` quantiles.
            targets: Float `[B]`, or `[B, J]` samples.
            weights: Importance weights, float `[B]`; None for ones.
            mean: Takes the mean over the rows that count.
        """
        if len(targets.shape) > 1:
            per_row = [quantile_huber(value, targets) for value in values]
            sizes = [ops.abs(ops.mean(value, axis=1) - ops.mean(targets, axis=1)) for value in values]
        else:
            errors = [value - targets for value in values]
            per_row, sizes = [error_loss(self, error) for error in errors], [ops.abs(error) for error in errors]
        weighted = [mean(row if weights is None else weights * row) for row in per_row]
        return sum_of(weighted), ops.stop_gradient(sum_of(sizes) / len(sizes))

    def target_value(self, values: list[Tensor]) -> Tensor:
        """Returns what several target critics say together: the smallest, or quantiles without the largest."""
        if self.config.n_quantiles > 1:
            return truncated_quantiles(values, self.config.top_quantiles_to_drop)
        return smallest(values)

    def entropy_bonus(self, alpha: Tensor, log_probs: Tensor) -> Tensor:
        """Returns what targets value the entropy of the next step at, −α log π, in the shape of `log_probs`."""
        return -alpha * log_probs

    def critics(self, networks: Any, *inputs: Tensor, training: bool = False, frozen: bool = False) -> list[Tensor]:
        """Returns each critic's values: `[B]`, or `[B, M]` quantiles; for discrete actions `[B, A]`."""
        made = [getattr(networks, name)(*inputs, training=training, frozen=frozen) for name in self.critic_names]
        single = not self.discrete and self.config.n_quantiles == 1
        return [values[:, 0] for values in made] if single else made

    def rows_left(self) -> dict[str, Any]:
        """Returns the TD errors `[B]` that a loss of the user's own left as RLlib's did."""
        return td_error_left(self)

    def stats_left(self) -> dict[str, Any]:
        """Returns losses and α that such a loss left."""
        left = means_kept(self, *self.left_names)
        if left and hasattr(self.model, "log_alpha"):
            log_alpha = ops.stop_gradient(self.model.log_alpha) + 0.0
            left |= {"alpha_value": ops.exp(log_alpha), "log_alpha_value": log_alpha}
            left["target_entropy"] = self.target_entropy
        return left

    def output(
        self, model: Any, actor_loss: Tensor, critic_loss: Tensor, alpha_loss: Tensor, td_error: Tensor, q: Tensor,
        policy_t: Tensor,
    ) -> LossOutput:  # fmt: skip
        """Returns the losses of actor, critics and α with the report."""
        log_alpha = ops.stop_gradient(model.log_alpha) + 0.0  # not the variable itself, which is about to move
        stats = {
            "actor_loss": actor_loss,
            "critic_loss": critic_loss / len(self.critic_names),
            "alpha_loss": alpha_loss,
            "alpha_value": ops.exp(log_alpha),
            "log_alpha_value": log_alpha,
            "target_entropy": ops.zeros_like(log_alpha) + self.target_entropy,
            "policy_t": ops.mean(policy_t),
            "mean_q": ops.mean(q),
            "max_q": ops.max(q),
            "min_q": ops.min(q),
        }
        report = {name: ops.stop_gradient(value) for name, value in stats.items()}
        losses = {"actor": actor_loss, "critic": critic_loss, "alpha": alpha_loss}
        return LossOutput(losses, report, {"td_error": td_error})


__getattr__ = lazy_policies(__name__, SACPolicy, SACTorchPolicy="torch", SACTFPolicy="tf")
