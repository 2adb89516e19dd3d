"""ACER: networks, optimiser and loss on whole sequences, for discrete and continuous actions, in both frameworks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rlframe.agents.families.actor_critic_networks import network_of, remembering_encoder_config, settle_action_space
from rlframe.agents.families.replayed_sequences import encoded, histories
from rlframe.data.columns import ACTION_DIST_INPUTS, ACTIONS, DISCOUNTS, DONES, NEXT_OBS, OBS, REWARDS, VALID_MASK
from rlframe.data.n_step import postprocess_discounts, with_discounts
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.actor_critic import expected, gaussian_statistics
from rlframe.losses.masking import valid_mean
from rlframe.losses.q_learning import select_by_action
from rlframe.losses.retrace import retrace
from rlframe.losses.truncated_importance import choices_gradient, gaussian_gradient
from rlframe.losses.trust_region import categorical_kl_gradient, gaussian_kl_gradient, gaussian_log_ratio, projected
from rlframe.models.dist_plan import SMALL
from rlframe.models.spec import Part
from rlframe.policy.backends import lazy_policies
from rlframe.policy.coefficients import schedules_of
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
    learn_columns = (OBS, ACTIONS, REWARDS, DISCOUNTS, ACTION_DIST_INPUTS)
    encoder_may_remember = True
    complete_batch = with_discounts
    padded_sequences = histories
    postprocess_trajectory = postprocess_discounts
    target_networks = ("actor", "encoder")

    discrete: bool
    action_size: int
    reported = {"cur_lr": "cur_lr", "entropy_coeff": "entropy_coeff"}  # noqa: RUF012
    cur_lr: float
    entropy_coeff: float

    # --- what it consists of ----------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Settles by the action space which ACER this is, and starts the schedules."""
        settle_action_space("ACER", self)
        self.components.update(schedules_of(self, self.config))

    def encoder(self) -> dict[str, Any] | None:
        """Returns what actor and critics share: convolutions of images, a memory, or a model of the user's own."""
        return remembering_encoder_config(self, self.config.model)

    def networks(self) -> Mapping[str, Part]:
        """Returns actor and critics; behind an encoder, of one layer each."""
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
        """Moves the average policy towards the one that learns, by the share `tau`; None takes 1 − `ema_alpha`."""
        super().update_target(1.0 - self.config.ema_alpha if tau is None else tau)

    # --- the loss ---------------------------------------------------------------------------------------------

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
        """Returns the loss of one batch, a scalar, and its statistics; the equations are the class's."""
        del dist_class
        made = (_discrete_estimates if self.discrete else _continuous_estimates)(self, model, train_batch)
        config, mean = self.config, valid_mean(train_batch)
        steps = projected(made.gradients, made.kl_gradients, config.delta) if config.trust_region else made.gradients
        policy_loss = -mean(ops.sum(ops.stop_gradient(steps) * made.statistics, axis=-1))
        vf_loss = mean(made.value_loss)
        total = policy_loss + config.vf_loss_coeff * vf_loss
        beyond = ops.sum(made.kl_gradients * made.gradients, axis=-1) > config.delta
        stats = {
            "total_loss": total,
            "policy_loss": policy_loss,
            "vf_loss": vf_loss,
            "entropy": mean(made.entropy),
            "mean_q": mean(made.q_taken),
            "mean_q_target": mean(made.targets),
            "mean_ratio": mean(made.ratios),
            "beyond_trust_region": mean(ops.to_float(beyond)),
        }
        return LossOutput(total, {name: ops.stop_gradient(value) for name, value in stats.items()})


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


def _discrete_estimates(policy: ACERPolicy, model: Any, batch: SampleBatch) -> Estimates:
    config, actions, features = policy.config, batch[ACTIONS], encoded(policy, model, batch, training=True)
    log_probs, q = ops.log_softmax(model.actor(features)), model.critic(features)
    probs, q_taken = ops.exp(log_probs), select_by_action(q, actions)
    # What follows is constant: no gradient flows but through φ and Q(s, a).
    p, epsilon, value = ops.stop_gradient(probs), config.epsilon, ops.stop_gradient(expected(probs, q))
    ratios, log_p = p / (ops.softmax(batch[ACTION_DIST_INPUTS]) + epsilon), ops.log(p + epsilon)
    ratio = select_by_action(ratios, actions)
    traces = config.lambda_ * ops.minimum(ratio, 1.0)
    sampled, behind = (batch[REWARDS], batch[DISCOUNTS]), (q_taken, *_behind(value, batch))
    targets = retrace(*sampled, traces, *behind)
    taken, advantages = ops.one_hot(actions, policy.action_size), ops.stop_gradient(q) - value[:, None]
    limits: dict[str, Any] = {"c": config.importance_c, "epsilon": epsilon}
    gradients = choices_gradient(p, ratios, taken, targets - value, advantages, **limits)
    average = ops.softmax(_average(policy, batch))
    return Estimates(
        probs,
        gradients - policy.entropy_coeff * (log_p + 1.0),
        categorical_kl_gradient(p, average, epsilon),
        0.5 * ops.square(targets - q_taken),
        q_taken,
        targets,
        ratio,
        -expected(p, log_p),
    )


def _continuous_estimates(policy: ACERPolicy, model: Any, batch: SampleBatch) -> Estimates:
    config, size, features = policy.config, policy.action_size, encoded(policy, model, batch, training=True)
    mean, log_std = gaussian_statistics(model.actor(features))
    m, s, value = ops.stop_gradient(mean), ops.stop_gradient(log_std), model.value(features)[:, 0]
    behaviour = gaussian_statistics(batch[ACTION_DIST_INPUTS])
    raw = ops.atanh(ops.clip(batch[ACTIONS], -1.0 + SMALL, 1.0 - SMALL))
    drawn = m + ops.exp(s) * batch[NOISE]
    advantage, drawn_advantage = _dueling_values(policy, model, features, (m, s), batch, drawn)
    q_taken, v = value + advantage, ops.stop_gradient(value)
    most = -math.log(config.epsilon)  # as large as ratios of probabilities can be: what is averaged must be finite
    log_ratio, drawn_log_ratio = (gaussian_log_ratio(x, (m, s), behaviour, most) for x in (raw, drawn))
    ratio, drawn_ratio = ops.exp(log_ratio), ops.exp(drawn_log_ratio)
    traces = config.lambda_ * ops.exp(ops.minimum(log_ratio, 0.0) / size)
    sampled, behind = (batch[REWARDS], batch[DISCOUNTS]), (q_taken, *_behind(value, batch))
    targets = retrace(*sampled, traces, *behind)
    uncorrected = retrace(*sampled, config.lambda_ * ops.ones_like(traces), *behind)
    limits: dict[str, Any] = {"c": config.importance_c, "epsilon": config.epsilon}
    of_drawn = drawn, drawn_ratio, ops.stop_gradient(drawn_advantage)
    gradients = gaussian_gradient(m, s, (raw, ratio, uncorrected - v), of_drawn, **limits)
    # The entropy of a Gaussian grows with each log σ alike.
    gradients = gradients + policy.entropy_coeff * ops.concat([ops.zeros_like(m), ops.ones_like(s)], axis=1)
    value_target = v + ops.minimum(ratio, 1.0) * (targets - ops.stop_gradient(q_taken))
    return Estimates(
        ops.concat([mean, log_std], axis=1),
        gradients,
        gaussian_kl_gradient(m, s, *gaussian_statistics(_average(policy, batch))),
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


def _behind(values: Tensor, batch: SampleBatch) -> tuple[Tensor, Tensor]:
    """Returns V(s_{t+1}), float `[B]`, and where no step of the same sequence follows, bool `[B]`.

    Sequences have one row more than steps, for the observation behind the last; what is said of such rows is not used.
    """
    return ops.roll(values, -1), ~ops.roll(batch[VALID_MASK], -1)


def _average(policy: ACERPolicy, batch: SampleBatch) -> Tensor:
    """Returns the average policy's distribution inputs, float `[B, K]`, as constants."""
    networks = policy.target_model

    def inputs(obs: Tensor) -> Tensor:
        return networks.actor(encoded(policy, networks, {**batch, OBS: obs}))

    made: Tensor = ops.without_gradient(inputs, batch[OBS])
    return made


__getattr__ = lazy_policies(__name__, ACERPolicy, ACERTorchPolicy="torch", ACERTFPolicy="tf")
