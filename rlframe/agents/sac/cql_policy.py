"""CQL: SAC's losses with a penalty on values of actions that are not in the data, for both frameworks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rlframe.agents.sac.sac_policy import NEXT_NOISE, NOISE, SACPolicy
from rlframe.data.columns import ACTIONS, NEXT_OBS, OBS
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.actor_critic import expected, squashed_gaussian
from rlframe.losses.offline import conservative_penalty
from rlframe.losses.q_learning import select_by_action
from rlframe.models.spec import Part, Variable
from rlframe.policy.backends import lazy_policies
from rlframe.policy.parts import AdamSpec, Component, FusedGradients, LossOutput
from rlframe.policy.users_code import overridden_by_user
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor

if TYPE_CHECKING:
    from rlframe.agents.sac.cql import CQLConfig

#: What the compared actions are made of, `[B, n · A]` each: uniform actions, and noise of the policy's own.
UNIFORM, OWN_NOISE, NEXT_OWN_NOISE = "uniform_actions", "own_actions_noise", "next_own_actions_noise"
#: Largest weight of the penalty that a Lagrange multiplier comes to.
MOST_WEIGHT = 1e6


class CloningPhase(Component):
    """The first updates of an actor, in which it clones behaviour; the policy has `cloning`, 1 then and 0 later.

    The policy has the number of updates as `cur_iter`, too, which copies of RLlib's loss count on.

    Args:
        policy: The policy.
        updates: How many updates these are.
    """

    def __init__(self, policy: Any, updates: int) -> None:
        self._policy, self._updates = policy, updates
        self.set_state({"updates": 0})

    def after_learning(self, samples: SampleBatch, stats: Mapping[str, Any]) -> None:
        """Counts an update."""
        counted = self._policy.cur_iter
        self.set_state({"updates": self._done + 1})
        self._policy.cur_iter = max(self._done, counted)  # copies of RLlib's loss count themselves

    def get_state(self) -> dict[str, Any]:
        """Returns how many updates were done."""
        return {"updates": self._done}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes that number back."""
        self._done = self._policy.cur_iter = int(state["updates"])
        self._policy.cloning = float(self._done < self._updates)


class CQLPolicy(SACPolicy):
    """SAC whose critics value actions low that are not in the data.

        critics:  y = r + γⁿ(1 − d) · min_i Q⁻_i(s', a'),   a' ~ π(·|s')
                  Σ_i mean[ (Q_i(s, a) − y)² + α' c (T log Σ_j exp(Q_i(s, a_j) / T) − Q_i(s, a)) ]
        actor:    for `bc_iters` updates mean[ α log π − log π(a|s) ] of the data's actions, then SAC's

    For continuous actions a_j are uniform ones, and the policy's own in s and in s', each less the logarithm of its
    density; for discrete ones all there are. α' is 1, or with `lagrangian` a multiplier that keeps the penalty near
    `lagrangian_thresh`.

    Squares are whole ones, of which c is a share in RLlib and d3rlpy; targets have no entropy in them, there and in
    the authors' program.

    Source: Kumar et al. 2020, "Conservative Q-Learning for Offline Reinforcement Learning", eqs. 4 and 30.
    """

    config: CQLConfig
    defaults_from = "rlframe.agents.sac.cql:CQL_DEFAULT_CONFIG"
    takes_own_model = False
    left_names = (
        *SACPolicy.left_names, "cql_loss", "log_alpha_prime_value", "alpha_prime_value", "alpha_prime_loss"
    )  # fmt: skip
    fused_gradients: FusedGradients | None = FusedGradients(
        {"torch": "rlframe.agents.sac.dense_cql_torch:DenseCQLGradients"},
        (
            *("loss", "critic_loss", "critics", "target_value", "entropy_bonus", "keep"),
            *("with_penalty", "penalty_weight", "_penalties", "_compared_actions", "_cloning_loss"),
        ),
    )
    encoder_may_remember = False
    learn_scalars = ("cloning",)
    cloning: float
    cur_iter: int

    def prepare(self) -> None:
        """Begins the phase of cloning."""
        super().prepare()
        self.components["cloning"] = CloningPhase(self, self.config.bc_iters)

    def networks(self) -> Mapping[str, Part]:
        """Returns SAC's, and the logarithm of the Lagrange multiplier if there is one."""
        if not self.config.lagrangian:
            return super().networks()
        # Copies of RLlib's loss take the first of one number, as it was there.
        start = [0.0] if overridden_by_user(type(self), "loss") else 0.0
        return {**super().networks(), "log_alpha_prime": Variable(start)}

    def optimizers(self) -> Mapping[str, AdamSpec]:
        """Returns SAC's, and the multiplier's."""
        made = dict(super().optimizers())
        if self.config.lagrangian:
            rate = self.config.optimization["critic_learning_rate"]
            made["alpha_prime"] = AdamSpec(("log_alpha_prime",), rate, eps=1e-7, grad_clip=self.config.grad_clip)
        return made

    def random_columns(self, rows: int, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
        """Returns the noise of SAC's losses, and of the actions that are compared."""
        made = super().random_columns(rows, rng)
        if self.discrete:
            return made
        if self.config.mean_target_actions:
            made[NEXT_NOISE] = np.zeros_like(made[NEXT_NOISE])
        shape = (rows, self.config.num_actions * self.action_size)
        made[UNIFORM] = rng.uniform(-1.0, 1.0, shape).astype(np.float32)
        for name in (OWN_NOISE, NEXT_OWN_NOISE):
            made[name] = rng.standard_normal(shape, np.float32)
        return made

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
        """Returns the losses of actor, critics, α and the multiplier."""
        made = super().loss(model, dist_class, train_batch)
        assert isinstance(made.losses, Mapping)
        penalties = [self.config.min_q_weight * ops.mean(penalty) for penalty in self._penalties(model, train_batch)]
        penalty = sum(penalties[1:], start=penalties[0]) / len(penalties)
        cloned = self._cloning_loss(model, dist_class, train_batch)
        actor_loss = self.cloning * cloned + (1.0 - self.cloning) * made.losses["actor"]
        return self.with_penalty(model, made, actor_loss, penalty)

    def with_penalty(self, model: Any, made: LossOutput, actor_loss: Tensor, penalty: Tensor) -> LossOutput:
        """Returns SAC's losses as CQL's: with the actor's own, whole squares and the penalty, and the multiplier's.

        Args:
            model: The networks.
            made: What SAC's loss returned.
            actor_loss: The actor's, a scalar.
            penalty: The mean penalty of a critic, times `min_q_weight`. A scalar.
        """
        config, count = self.config, len(self.critic_names)
        assert isinstance(made.losses, Mapping)
        losses = {**made.losses, "actor": actor_loss}
        stats = {**made.stats, "actor_loss": ops.stop_gradient(actor_loss)}
        if config.lagrangian:
            surplus = penalty - config.lagrangian_thresh
            weight = self.penalty_weight(model)
            losses["alpha_prime"] = -weight * ops.stop_gradient(surplus)
            penalty = ops.stop_gradient(weight) * surplus
            log_weight = (
                ops.stop_gradient(ops.reshape(model.log_alpha_prime, ())) + 0.0
            )  # not the variable, which is about to move
            stats |= {
                "log_alpha_prime_value": log_weight,
                "alpha_prime_value": ops.stop_gradient(weight),
                "alpha_prime_loss": ops.stop_gradient(losses["alpha_prime"]),
            }
        losses["critic"] = 2.0 * made.losses["critic"] + count * penalty
        stats |= {
            "cql_loss": ops.stop_gradient(penalty),
            "critic_loss": ops.stop_gradient(losses["critic"]) / count,
        }
        return replace(made, losses=losses, stats=stats)

    def penalty_weight(self, model: Any) -> Tensor:
        """Returns α', a scalar, of the multiplier's logarithm."""
        return ops.clip(ops.exp(ops.reshape(model.log_alpha_prime, ())), 0.0, MOST_WEIGHT)

    def entropy_bonus(self, alpha: Tensor, log_probs: Tensor) -> Tensor:
        """Returns zeros: values are those of rewards alone."""
        return ops.zeros_like(alpha * log_probs)

    def _penalties(self, model: Any, batch: SampleBatch) -> list[Tensor]:
        """Returns of each critic how far it values other actions above those in the data, float `[B]`."""
        seen, temperature = model.encode(batch[OBS], training=True), self.config.temperature
        if self.discrete:
            every = self.critics(model, seen)
            return [
                conservative_penalty(ops.swap_axes(values, 0, 1), select_by_action(values, batch[ACTIONS]), temperature)
                for values in every
            ]
        taken = [_expectation(values) for values in self.critics(model, seen, batch[ACTIONS])]
        actions, log_densities = self._compared_actions(model, batch, seen)
        count = 3 * self.config.num_actions
        repeated = ops.concat([seen] * count, axis=0)
        values = [_expectation(made) - log_densities for made in self.critics(model, repeated, actions)]
        return [
            conservative_penalty(ops.reshape(every, (count, -1)), one, temperature)
            for every, one in zip(values, taken, strict=True)
        ]

    def _compared_actions(self, model: Any, batch: SampleBatch, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Returns actions `[M · B, A]`, the B of each kind one after the other, and their log-densities `[M · B]`."""
        count, size = self.config.num_actions, self.action_size
        uniform = ops.split(batch[UNIFORM], [size] * count)
        actions, log_densities = list(uniform), [ops.zeros_like(each[:, 0]) - size * math.log(2.0) for each in uniform]
        for obs, noise in ((seen, OWN_NOISE), (model.encode(batch[NEXT_OBS]), NEXT_OWN_NOISE)):
            inputs = ops.stop_gradient(model.actor(ops.stop_gradient(obs)))
            for each in ops.split(batch[noise], [size] * count):
                drawn, logp = squashed_gaussian(inputs, each)
                actions.append(drawn)
                log_densities.append(logp)
        return ops.concat(actions, axis=0), ops.concat(log_densities, axis=0)

    def _cloning_loss(self, model: Any, dist_class: Any, batch: SampleBatch) -> Tensor:
        """Returns mean[ α log π − log π(a|s) ], a scalar."""
        alpha = ops.stop_gradient(ops.exp(model.log_alpha))
        inputs = model.actor(ops.stop_gradient(model.encode(batch[OBS], training=True)))
        if self.discrete:
            log_probs = ops.log_softmax(inputs)
            entropy_term = expected(ops.exp(log_probs), alpha * log_probs)
            return ops.mean(entropy_term - select_by_action(log_probs, batch[ACTIONS]))
        _, logp = squashed_gaussian(inputs, batch[NOISE])
        return ops.mean(alpha * logp - dist_class(inputs, model).logp(batch[ACTIONS]))


def _expectation(values: Tensor) -> Tensor:
    """Returns what quantiles `[B, M]` say in the mean; values `[B]` as they are."""
    return ops.mean(values, axis=1) if len(values.shape) > 1 else values


__getattr__ = lazy_policies(__name__, CQLPolicy, CQLTorchPolicy="torch", CQLTFPolicy="tf")
