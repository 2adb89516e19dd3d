"""DDPG and TD3: networks, optimisers and losses, in both frameworks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rlframe.agents.ddpg.ddpg_model import DDPGModelMethods, build_ddpg_models_and_action_dist, is_own, networks_in
from rlframe.agents.families.actor_critic_networks import action_size, obs_width, remembering_encoder_config
from rlframe.agents.families.own_model import distribution_of_features, held, of_constants, own_weights
from rlframe.agents.families.replayed_sequences import (
    encoded,
    encoded_next,
    histories,
    prepare_sequences,
    steps_of,
    td_errors_to_replay,
)
from rlframe.agents.families.td_errors import error_loss, td_error_left, td_error_of
from rlframe.agents.families.users_losses import means_kept, parts_left
from rlframe.data.columns import ACTIONS, DISCOUNTS, REWARDS, WEIGHTS
from rlframe.data.n_step import (
    LOSS_COLUMNS,
    SAMPLED_COLUMNS,
    postprocess_replayed,
    with_discounts,
    with_discounts_and_weights,
)
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.actor_critic import bootstrapped, half_squares, smallest, smoothed_actions
from rlframe.losses.masking import valid_mean, valid_rows
from rlframe.models.spec import Dense, Initial, Layer, Network, Part, Rescale, dense_layers
from rlframe.policy.backends import lazy_policies
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.parts import WHOLE_MODEL, AdamSpec, Component, FusedGradients, LossOutput
from rlframe.policy.variable_numbers import GlobalStep
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor

if TYPE_CHECKING:
    from rlframe.agents.ddpg.ddpg import DDPGConfig

#: Standard normal noise of the target actor's actions, `[B, A]`; with `smooth_target_policy`.
SMOOTHING = "smoothing_noise"


class LastActorLoss(Component):
    """Reports the actor's loss for updates, too, in which it does not step: the last that there was."""

    _last: float | None = None

    def after_learning(self, samples: SampleBatch, stats: dict[str, Any]) -> None:
        """Keeps `actor_loss` of the statistics, or adds the last one to them."""
        del samples
        self._last = stats.get("actor_loss", self._last)
        if self._last is not None:
            stats["actor_loss"] = self._last

    def get_state(self) -> dict[str, Any]:
        """Returns the last loss, if there is one."""
        return {} if self._last is None else {"last": self._last}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes what `get_state` returned."""
        self._last = state.get("last")


class DDPGPolicy(LearningPolicy):
    """A deterministic actor and one or two critics, with slowly following copies of all.

        critics:  y = r + γⁿ(1 − d) · min_i Q⁻_i(s', μ⁻(s')),   ½ (Q_i(s, a) − y)²
        actor:    −Q_1(s, μ(s)), in one of `policy_delay` updates

    TD3 is two critics, a delayed actor, and clipped noise on μ⁻(s').

    Source: Lillicrap et al. 2016, "Continuous Control with Deep Reinforcement Learning", algorithm 1; Fujimoto et al.
    2018, "Addressing Function Approximation Error in Actor-Critic Methods", algorithm 1 (TD3).
    """

    config: DDPGConfig
    defaults_from = "rlframe.agents.ddpg.ddpg:DEFAULT_CONFIG"
    train_columns = SAMPLED_COLUMNS
    learn_columns: tuple[str, ...] | None = LOSS_COLUMNS
    complete_columns, complete_batch = with_discounts, with_discounts_and_weights
    compute_td_error = td_error_of
    postprocess_trajectory = postprocess_replayed
    padded_sequences = histories
    encoder_may_remember = True
    dist_type = "deterministic"
    global_step: Any = GlobalStep()
    #: Whether the loss reads a model of the program's own in place of the networks.
    takes_own_model = True
    fused_gradients: FusedGradients | None = FusedGradients(
        {"torch": "rlframe.agents.ddpg.dense_ddpg_torch:DenseDDPGGradients"},
        ("loss", "next_value", "target_actions", "trusted", "actor_loss", "penalty", "output", "keep"),
    )

    # --- what it consists of ----------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Checks the action space, and settles how many critics there are."""
        self.action_size = action_size("DDPG", self.action_space, discrete=False)
        self.critic_names = ("q", "twin_q") if self.config.twin_q else ("q",)
        self.target_networks = ("actor", *self.critic_names, "encoder")
        space: Any = self.action_space
        normalized = self.config.normalize_actions
        #: Bounds of the actor's actions, numbers or arrays `[A]`.
        self.bounds: tuple[Any, Any] = (-1.0, 1.0) if normalized else (space.low, space.high)

    def encoder(self) -> dict[str, Any] | None:
        """Returns the network that observations pass through first: that of `model`, where it is wanted or needed."""
        wanted = self.config.use_state_preprocessor
        return dict(self.config.model) if wanted else remembering_encoder_config(self, {})

    def networks(self) -> Mapping[str, Part]:
        """Returns actor and critics."""
        config, width, initial = self.config, obs_width(self), Initial(self.config.initial_weights)
        noisy = (config.exploration_config or {}).get("type") == "ParameterNoise"
        hidden = dense_layers(config.actor_hiddens, config.actor_hidden_activation, initial=initial, layer_norm=noisy)
        bounds: tuple[Layer, ...] = ()
        if not self.config.normalize_actions:
            bounds = (Rescale("bounds", *(tuple(map(float, bound)) for bound in self.bounds)),)
        head = Dense("output", "tanh", self.action_size, initial)
        seen = {"obs": width, ACTIONS: self.action_size}
        critic = Network(seen, (*self.critic_layers(), Dense("output", "linear", 1, initial)))
        return {
            "actor": Network({"obs": width}, (*hidden, head, *bounds)),
            **dict.fromkeys(self.critic_names, critic),
        }

    def critic_layers(self) -> tuple[Layer, ...]:
        """Returns the hidden layers of a critic."""
        config = self.config
        initial = Initial(config.initial_weights)
        return dense_layers(config.critic_hiddens, config.critic_hidden_activation, initial=initial)

    def optimizers(self) -> Mapping[str, AdamSpec]:
        """Returns Adam for the actor, which steps once in `policy_delay` updates, and for the critics."""
        config = self.config
        clip, critics = config.grad_clip, (*self.critic_names, *(["encoder"] if self.encoder() else []))
        return {
            "actor": AdamSpec(("actor",), config.actor_lr, 1e-7, clip, every=config.policy_delay),
            "critic": AdamSpec(critics, config.critic_lr, 1e-7, clip),
        }

    def make_components(self) -> dict[str, Component]:
        """Returns what reports of an actor that waits; has workers cut the rows of a memory into sequences."""
        prepare_sequences(self)
        if self.has_own_model:
            self.fused_gradients = None
            self._action_distribution_fn = self._action_distribution_fn or distribution_of_features
        return {"actor_loss": LastActorLoss()} if self.config.policy_delay > 1 else {}

    # --- a model of the program's own in place of the networks ------------------------------------------------

    @property
    def has_own_model(self) -> bool:
        """Whether the model is a program's `DDPGTorchModel` or `DDPGTFModel`."""
        return isinstance(self.model, DDPGModelMethods)

    def make_model_and_dist(self) -> tuple[Any, Any]:
        """Returns the networks, or a model of the program's own, and the distribution class."""
        if not is_own(self):
            return super().make_model_and_dist()
        return build_ddpg_models_and_action_dist(self, self.observation_space, self.action_space, self.config)

    def weights_of(self, networks: tuple[str, ...]) -> dict[str, Any]:
        """Returns the weights of some networks, in the framework's tensors, by name."""
        return own_weights(self.model, networks) if self.has_own_model else super().weights_of(networks)

    def _make_target_network(self, names: tuple[str, ...]) -> None:
        make: Any = super()
        make._make_target_network(WHOLE_MODEL if self.has_own_model else names)  # the framework's

    def random_columns(self, rows: int, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
        """Returns the noise of the target actor's actions."""
        if not self.config.smooth_target_policy:
            return {}
        return {SMOOTHING: rng.standard_normal((rows, self.action_size), np.float32)}

    # --- losses -----------------------------------------------------------------------------------------------

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
        """Returns the losses of actor and critics; see `ddpg_actor_critic_loss`."""
        return ddpg_actor_critic_loss(self, model, dist_class, train_batch)

    def next_value(self, batch: SampleBatch) -> Tensor:
        """Returns what the target critics say of the target actor's actions, the smallest of them. Float `[B]`."""
        target, steps = networks_in(self.target_model), steps_of(self, batch)

        def value(seen: Tensor) -> Tensor:
            actions = self.target_actions(target.actor(seen), steps)
            values = [getattr(target, name)(seen, actions)[:, 0] for name in self.critic_names]
            return self.trusted(smallest(values), actions, steps)

        made: Tensor = of_constants(value, encoded_next(self, target, batch))
        return made

    def trusted(self, value: Tensor, actions: Tensor, steps: SampleBatch) -> Tensor:
        """Returns what targets make of the value `[B]` of next actions `[B, A]`: here the value itself."""
        del actions, steps
        return value

    def actor_loss(self, model: Any, features: Tensor, steps: SampleBatch, mean: Callable[[Tensor], Tensor]) -> Tensor:
        """Returns −mean[ Q_1(s, μ(s)) ], a scalar.

        Args:
            model: The networks.
            features: Of the observations, constants. Float `[B, F]`.
            steps: The rows.
            mean: Takes the mean over the rows that count.
        """
        del steps
        return -mean(model.q(features, model.actor(features), frozen=True)[:, 0])

    def target_actions(self, actions: Tensor, batch: SampleBatch) -> Tensor:
        """Returns the target actor's actions `[B, A]`, with noise where they are smoothed."""
        config = self.config
        if not config.smooth_target_policy:
            return actions
        return smoothed_actions(actions, batch[SMOOTHING], config.target_noise, config.target_noise_clip, self.bounds)

    def penalty(self, model: Any, name: str) -> Tensor:
        """Returns ½ l2_reg Σ w² over the weights of a network, biases aside; a scalar."""
        own = self.has_own_model
        return self.config.l2_reg * half_squares(model.kernels(name) if own else getattr(model, name).kernels())

    def losses_in_turn(self, losses: list[Any]) -> list[Any]:
        """Returns the losses of actor and critics, of RLlib's in TensorFlow, which was the sum, and left them."""
        return parts_left(self, losses, "actor_loss", "critic_loss")

    def rows_left(self) -> dict[str, Any]:
        """Returns the TD errors `[B]` that a loss of the user's own left as RLlib's did."""
        return td_error_left(self)

    def stats_left(self) -> dict[str, Any]:
        """Returns the losses that such a loss left."""
        return means_kept(self, "actor_loss", "critic_loss")

    def output(self, model: Any, critic: Tensor, actor: Tensor | None, td_error: Tensor, q: Tensor) -> LossOutput:
        """Returns the losses with their penalties, and the report.

        Args:
            model: The networks.
            critic: The critics' summed losses, a scalar.
            actor: The actor's loss, a scalar; None where it does not step.
            td_error: The first critic's TD errors. Float `[B]`.
            q: The first critic's values. Float `[B]`.
        """
        if self.config.l2_reg:
            for name in self.critic_names:
                critic = critic + self.penalty(model, name)
        losses = {"critic": critic}
        stats = {"critic_loss": critic, "mean_q": ops.mean(q), "max_q": ops.max(q), "min_q": ops.min(q)}
        if actor is not None:
            actor = actor + self.penalty(model, "actor") if self.config.l2_reg else actor
            stats["actor_loss"] = losses["actor"] = actor
        report = {name: ops.stop_gradient(value) for name, value in stats.items()}
        return LossOutput(losses, report, {"td_error": td_error})


def ddpg_actor_critic_loss(policy: DDPGPolicy, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
    """Returns the losses of actor and critics for one batch; the equations are those of `DDPGPolicy`."""
    del dist_class
    model = networks_in(model)
    steps, seen = steps_of(policy, train_batch), encoded(policy, model, train_batch, training=True)
    weights, mean = steps.get(WEIGHTS), valid_mean(steps)
    targets = bootstrapped(steps[REWARDS], steps[DISCOUNTS], policy.next_value(train_batch))
    values = [getattr(model, name)(seen, steps[ACTIONS])[:, 0] for name in policy.critic_names]
    critic_loss = 0.0
    for value in values:
        per_row = error_loss(policy, value - targets)
        critic_loss = critic_loss + mean(per_row if weights is None else weights * per_row)
    td_error = ops.stop_gradient(values[0]) - targets
    actor_loss = None
    if policy.due("actor"):
        actor_loss = policy.actor_loss(model, held(seen), steps, mean)
    td_error = td_errors_to_replay(policy, td_error, steps)
    return policy.output(model, critic_loss, actor_loss, td_error, valid_rows(steps)(values[0]))


__getattr__ = lazy_policies(__name__, DDPGPolicy, DDPGTorchPolicy="torch", DDPGTFPolicy="tf")
