"""ACER: networks, optimiser and loss on whole sequences, for discrete and continuous actions, in both frameworks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rlframe.agents.families.actor_critic_networks import (
    action_size,
    check_normalized,
    encoder_config,
    is_discrete,
    network_of,
)
from rlframe.agents.families.replayed_policy import with_discounts
from rlframe.data.columns import (
    ACTION_DIST_INPUTS,
    ACTIONS,
    DISCOUNTS,
    DONES,
    NEXT_OBS,
    OBS,
    REWARDS,
    SEQ_LENS,
    VALID_MASK,
)
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.actor_critic import LOG_STD_MAX, LOG_STD_MIN, expected
from rlframe.losses.masking import valid_mean
from rlframe.losses.q_learning import select_by_action
from rlframe.losses.retrace import retrace
from rlframe.losses.trust_region import (
    categorical_kl_gradient,
    gaussian_kl_gradient,
    gaussian_logp,
    gaussian_score,
    projected,
)
from rlframe.models.dist_plan import SMALL
from rlframe.models.spec import Part
from rlframe.policy.backends import lazy_policies
from rlframe.policy.components import schedules_of
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.parts import AdamSpec, LossOutput
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor

if TYPE_CHECKING:
    from rlframe.agents.acer.acer import ACERConfig

#: Standard normal noise: of an action per row, `[B, A]`, and of those that a dueling network compares, `[B, n · A]`.
NOISE, DUELING_NOISE = "action_noise", "dueling_noise"
#: Entropy of a standard normal number, in nats.
ENTROPY_OF_ONE = 0.5 * math.log(2.0 * math.pi * math.e)


def postprocess_sequences(
    policy: Any, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
) -> SampleBatch:
    """Adds `discounts` = γ(1 − terminated)."""
    del other_agent_batches, episode
    return with_discounts(policy, sample_batch)


postprocess_sequences.handles_many = True  # type: ignore[attr-defined]  # one call for several trajectories
postprocess_sequences.framework_free = True  # type: ignore[attr-defined]  # NumPy workers may run it


class ACERPolicy(LearningPolicy):
    """An actor with a critic of actions, which learn from sequences of other policies, near an average policy.

        critic:  ½ (Q^ret_t − Q(s_t, a_t))²
        actor:   −φ(s_t)ᵀ z*_t,   z* = what `projected` makes of the gradient g by the distribution's statistics φ
        g_t    = min(c, ρ_t) (Q^ret_t − V_t) ∇ log π(a_t|s_t)
                 + E_{a ~ π} [ max(0, 1 − c/ρ_t(a)) (Q(s_t, a) − V_t) ∇ log π(a|s_t) ]  + c_e ∇ H(π)

    ρ = π/μ, where μ acted. φ are probabilities for discrete actions, and for continuous ones mean and log σ of a
    Gaussian that tanh squashes; there, Q is a stochastic dueling network, the expectation is over one draw, Q^opc,
    Retrace without its cut, takes the place of Q^ret in g, and V itself learns min(1, ρ_t) (Q^ret_t − Q(s_t, a_t)).

    Source: Wang et al. 2017, "Sample Efficient Actor-Critic with Experience Replay", algorithms 2 and 3.
    """

    config: ACERConfig
    defaults_from = "rlframe.agents.acer.acer:DEFAULT_CONFIG"
    train_columns = (NEXT_OBS, DONES, ACTION_DIST_INPUTS)
    learn_columns = (OBS, ACTIONS, REWARDS, NEXT_OBS, DISCOUNTS, ACTION_DIST_INPUTS)
    complete_batch = with_discounts
    postprocess_trajectory = postprocess_sequences
    target_networks = ("actor", "encoder")

    cur_lr: float
    entropy_coeff: float

    # --- what it consists of ----------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Settles by the action space which ACER this is, and starts the schedules."""
        self.discrete = is_discrete(self.action_space)
        self.action_size = action_size("ACER", self.action_space)
        if not self.discrete:
            check_normalized("ACER", self.action_space, self.config)
            self.dist_type = "squashed_gaussian"
        self.components.update(schedules_of(self, self.config))

    def encoder(self) -> dict[str, Any] | None:
        """Returns what actor and critics share: convolutions of images, or a model of the user's own."""
        return encoder_config(self, self.config.model)

    def networks(self) -> Mapping[str, Part]:
        """Returns actor and critics; behind an encoder, heads of one layer."""
        size, model = self.action_size, dict(self.config.model)
        if self.encoder():
            model |= {"custom_model": None, "fcnet_hiddens": []}
        if self.discrete:
            return {"actor": network_of(self, model, {}, size), "critic": network_of(self, model, {}, size)}
        return {
            "actor": network_of(self, model, {}, 2 * size),
            "value": network_of(self, model, {}, 1),
            "advantage": network_of(self, model, {ACTIONS: size}, 1),
        }

    def optimizers(self) -> Mapping[str, AdamSpec]:
        """Returns one Adam over all networks."""
        names = (*self.networks(), *(["encoder"] if self.encoder() else []))
        return {"loss": AdamSpec(names, self.config.lr, eps=1e-5, grad_clip=self.config.grad_clip)}

    def random_columns(self, rows: int, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
        """Returns the noise of the actions that the loss draws; none for discrete ones."""
        if self.discrete:
            return {}
        size, count = self.action_size, self.config.num_dueling_samples
        return {
            NOISE: rng.standard_normal((rows, size), np.float32),
            DUELING_NOISE: rng.standard_normal((rows, count * size), np.float32),
        }

    def learns_sequences(self) -> bool:
        """Returns True: Retrace looks along sequences, whatever the networks are."""
        return True

    def update_target(self, tau: float | None = None) -> None:
        """Moves the average policy towards the one that learns.

        Args:
            tau: How far; None takes 1 − `ema_alpha`.
        """
        super().update_target(1.0 - self.config.ema_alpha if tau is None else tau)

    # --- the loss ---------------------------------------------------------------------------------------------

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
        """Returns the loss of one batch; see `acer_loss`."""
        return acer_loss(self, model, dist_class, train_batch)

    def extra_grad_info(self, train_batch: SampleBatch) -> dict[str, Any]:
        """Returns the coefficients that follow schedules, and what the loss reports."""
        return {"cur_lr": self.cur_lr, "entropy_coeff": self.entropy_coeff, **super().extra_grad_info(train_batch)}


@dataclass(frozen=True)
class Estimates:
    """What a batch is learned from; rows `[B]` stand for sequences, padded and one after the other.

    Attributes:
        statistics: φ, with gradient. Float `[B, K]`.
        gradients: g, of what is to grow, by φ. Float `[B, K]`.
        kl_gradients: k, of the divergence from the average policy, by φ. Float `[B, K]`.
        value_loss: Float `[B]`.
        q_taken: Q(s_t, a_t). Float `[B]`.
        targets: Q^ret. Float `[B]`.
        ratios: π/μ of the actions taken. Float `[B]`.
        entropy: Of the policy; of the Gaussian before tanh for continuous actions. Float `[B]`.
    """

    statistics: Tensor
    gradients: Tensor
    kl_gradients: Tensor
    value_loss: Tensor
    q_taken: Tensor
    targets: Tensor
    ratios: Tensor
    entropy: Tensor


def acer_loss(policy: ACERPolicy, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
    """Returns the loss of one batch, a scalar, and its statistics; the equations are those of `ACERPolicy`."""
    del dist_class
    made = (_discrete_estimates if policy.discrete else _continuous_estimates)(policy, model, train_batch)
    config, mean = policy.config, valid_mean(train_batch)
    steps = projected(made.gradients, made.kl_gradients, config.delta) if config.trust_region else made.gradients
    policy_loss = -mean(ops.sum(ops.stop_gradient(steps) * made.statistics, axis=-1))
    vf_loss = mean(made.value_loss)
    total = policy_loss + config.vf_loss_coeff * vf_loss
    held = ops.sum(made.kl_gradients * made.gradients, axis=-1) > config.delta
    stats = {
        "total_loss": total,
        "policy_loss": policy_loss,
        "vf_loss": vf_loss,
        "entropy": mean(made.entropy),
        "mean_q": mean(made.q_taken),
        "mean_q_target": mean(made.targets),
        "mean_ratio": mean(made.ratios),
        "beyond_trust_region": mean(ops.to_float(held)),
    }
    return LossOutput(total, {name: ops.stop_gradient(value) for name, value in stats.items()})


def _discrete_estimates(policy: ACERPolicy, model: Any, batch: SampleBatch) -> Estimates:
    config, actions = policy.config, batch[ACTIONS]
    features = _history(model, batch)
    log_probs, q = ops.log_softmax(model.actor(features)), model.critic(features)
    values = ops.stop_gradient(expected(ops.exp(log_probs), q))
    log_probs, q = _now(log_probs, batch), _now(q, batch)
    q_taken, probs = select_by_action(q, actions), ops.exp(log_probs)
    # What follows is constant: no gradient flows but through φ and Q(s, a).
    p, log_p, q_now = (ops.stop_gradient(x) for x in (probs, log_probs, q))
    ratios = p / (ops.softmax(batch[ACTION_DIST_INPUTS]) + config.epsilon)
    ratio = select_by_action(ratios, actions)
    value, next_value = _both_ends(values, batch)
    traces = config.lambda_ * ops.minimum(ratio, 1.0)
    targets = retrace(batch[REWARDS], batch[DISCOUNTS], traces, q_taken, next_value, _ends(batch))
    taken = ops.cast_like(ops.one_hot(actions, policy.action_size), p) / (p + config.epsilon)
    gradients = (ops.minimum(ratio, config.importance_c) * (targets - value))[:, None] * taken
    correction = ops.maximum(1.0 - config.importance_c / (ratios + config.epsilon), 0.0)
    gradients = gradients + correction * (q_now - value[:, None])
    log_p = ops.log(p + config.epsilon)
    gradients = gradients - policy.entropy_coeff * (log_p + 1.0)
    average = ops.without_gradient(lambda obs: ops.softmax(_average(policy, obs)), batch[OBS])
    return Estimates(
        probs,
        gradients,
        categorical_kl_gradient(p, average, config.epsilon),
        0.5 * ops.square(targets - q_taken),
        q_taken,
        targets,
        ratio,
        -expected(p, log_p),
    )


def _continuous_estimates(policy: ACERPolicy, model: Any, batch: SampleBatch) -> Estimates:
    config, size = policy.config, policy.action_size
    features = _history(model, batch)
    mean, log_std = _gaussian(_now(model.actor(features), batch), size)
    values = model.value(features)[:, 0]
    m, s = ops.stop_gradient(mean), ops.stop_gradient(log_std)
    behaviour = _gaussian(batch[ACTION_DIST_INPUTS], size)
    raw = ops.atanh(ops.clip(batch[ACTIONS], -1.0 + SMALL, 1.0 - SMALL))
    drawn = m + ops.exp(s) * batch[NOISE]
    taken, other = _dueling_values(policy, model, _now(features, batch), (m, s), batch, drawn)
    value, next_value = _both_ends(values, batch)
    v = ops.stop_gradient(value)
    q_taken, q_drawn = value + taken, v + ops.stop_gradient(other)

    most = -math.log(config.epsilon)  # as large as ratios of probabilities can be: what is averaged must be finite
    log_ratio, drawn_log_ratio = (
        ops.minimum(gaussian_logp(x, m, s) - gaussian_logp(x, *behaviour), most) for x in (raw, drawn)
    )
    ratio, drawn_ratio = ops.exp(log_ratio), ops.exp(drawn_log_ratio)
    traces = config.lambda_ * ops.exp(ops.minimum(log_ratio, 0.0) / size)
    columns, ends = (batch[REWARDS], batch[DISCOUNTS]), _ends(batch)
    targets = retrace(*columns, traces, q_taken, next_value, ends)
    uncorrected = retrace(*columns, config.lambda_ * ops.ones_like(traces), q_taken, next_value, ends)
    weight = ops.minimum(ratio, config.importance_c) * (uncorrected - v)
    gradients = weight[:, None] * gaussian_score(raw, m, s)
    correction = ops.maximum(1.0 - config.importance_c / (drawn_ratio + config.epsilon), 0.0)
    gradients = gradients + (correction * (q_drawn - v))[:, None] * gaussian_score(drawn, m, s)
    # The entropy of a Gaussian grows with each log σ alike.
    gradients = gradients + policy.entropy_coeff * ops.concat([ops.zeros_like(m), ops.ones_like(s)], axis=1)

    average = ops.without_gradient(lambda obs: _gaussian(_average(policy, obs), size), batch[OBS])
    error = targets - ops.stop_gradient(q_taken)
    value_target = v + ops.minimum(ratio, 1.0) * error
    return Estimates(
        ops.concat([mean, log_std], axis=1),
        gradients,
        gaussian_kl_gradient(m, s, *average),
        0.5 * (ops.square(targets - q_taken) + ops.square(value_target - value)),
        q_taken,
        targets,
        ratio,
        ops.sum(s, axis=-1) + size * ENTROPY_OF_ONE,
    )


def _dueling_values(
    policy: ACERPolicy, model: Any, features: Tensor, gaussian: tuple[Tensor, Tensor], batch: SampleBatch, drawn: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns A(s, a) − mean_i A(s, u_i) of the actions taken, and of those drawn, `[B]` each; u_i are drawn anew.

    Source: Wang et al. 2017, eq. 13.
    """
    (mean, log_std), count = gaussian, policy.config.num_dueling_samples
    std, noise = ops.exp(log_std), ops.split(batch[DUELING_NOISE], [policy.action_size] * count)
    compared = [ops.tanh(mean + std * each) for each in noise]
    actions = ops.concat([batch[ACTIONS], ops.tanh(drawn), *compared], axis=0)
    made = model.advantage(ops.concat([features] * (count + 2), axis=0), actions)
    advantages = ops.reshape(made, (count + 2, -1))
    baseline = ops.mean(advantages[2:], axis=0)
    return advantages[0] - baseline, advantages[1] - baseline


# --- rows ---------------------------------------------------------------------------------------------------------


def _history(model: Any, batch: SampleBatch) -> Tensor:
    """Returns what the networks take for the T + 1 observations of each sequence, rows `[S · (T + 1), ...]`."""
    obs, next_obs = (ops.split_sequences(batch[column], batch[SEQ_LENS]) for column in (OBS, NEXT_OBS))
    history = ops.flatten_sequences(ops.concat([obs[:, :1], next_obs], axis=1))
    return model.encode(history, training=True)


def _now(rows: Tensor, batch: SampleBatch) -> Tensor:
    """Returns the rows `[S · T, ...]` of the steps themselves, of `[S · (T + 1), ...]`."""
    return ops.flatten_sequences(ops.split_sequences(rows, batch[SEQ_LENS])[:, :-1])


def _both_ends(values: Tensor, batch: SampleBatch) -> tuple[Tensor, Tensor]:
    """Returns V(s_t) and V(s_{t+1}), float `[S · T]` each, of values `[S · (T + 1)]`."""
    by_sequence = ops.split_sequences(values, batch[SEQ_LENS])
    return ops.flatten_sequences(by_sequence[:, :-1]), ops.flatten_sequences(by_sequence[:, 1:])


def _ends(batch: SampleBatch) -> Tensor:
    """Returns where no step of the same sequence follows: at the last one, and in padding. Bool `[S · T]`."""
    valid = ops.split_sequences(batch[VALID_MASK], batch[SEQ_LENS])
    return ~ops.flatten_sequences(ops.concat([valid[:, 1:], ops.zeros_like(valid[:, :1])], axis=1))


def _average(policy: ACERPolicy, obs: Tensor) -> Tensor:
    """Returns the average policy's distribution inputs, float `[B, K]`."""
    networks = policy.target_model
    inputs: Tensor = networks.actor(networks.encode(obs))
    return inputs


def _gaussian(inputs: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Returns μ and log σ, float `[B, A]` each, of distribution inputs `[B, 2A]`."""
    mean, log_std = ops.split(inputs, [size, size])
    return mean, ops.clip(log_std, LOG_STD_MIN, LOG_STD_MAX)


__getattr__ = lazy_policies(__name__, ACERPolicy, ACERTorchPolicy="torch", ACERTFPolicy="tf")
