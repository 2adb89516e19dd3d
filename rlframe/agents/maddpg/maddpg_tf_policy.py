"""MADDPG in TensorFlow: the losses of actor and critic, and the policy."""

from __future__ import annotations

from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlframe.agents.maddpg.joint_steps import (
    JOINT_ACTIONS,
    JOINT_NEXT_ACTIONS,
    JOINT_NEXT_OBS,
    JOINT_OBS,
    NOISE,
)
from rlframe.agents.maddpg.maddpg_policy import PARTS, MADDPGPolicy
from rlframe.agents.maddpg.maddpg_tf_model import MADDPGTFModel
from rlframe.data.columns import DISCOUNTS, NEXT_OBS, OBS, REWARDS
from rlframe.data.sample_batch import SampleBatch
from rlframe.policy.tf.adam import Adam
from rlframe.policy.tf.target import TargetNetwork
from rlframe.policy.tf.traced import TracedCalls
from rlframe.policy.tf_policy import TFPolicy
from rlframe.utils.quiet_tf import tf

Stats = dict[str, Any]
Tensor: TypeAlias = Any


def td_errors(q_t: Tensor, q_tp1: Tensor, rewards: Tensor, discounts: Tensor) -> Tensor:
    """Returns the temporal-difference errors of a critic, float `[B]`.

        δ = Q(x, a_1, …, a_N) − [ r + γ · Q⁻(x', a'_1, …, a'_N) ],  a'_j = μ⁻_j(o'_j)

    Gradients flow through `q_t` only.

    Args:
        q_t: The critic's values of what was seen and done. Float `[B]`.
        q_tp1: The target critic's values of what followed. Float `[B]`.
        rewards: Sum of n discounted rewards of the agent. Float `[B]`, in env reward units.
        discounts: γᵏ for k summed rewards where the episode went on, 0 where it terminated. Float `[B]`.

    Source: Lowe et al. 2017, "Multi-Agent Actor-Critic for Mixed Cooperative-Competitive Environments", eq. 6.
    """
    return q_t - tf.stop_gradient(rewards + discounts * q_tp1)


def relaxed_actions(features: Tensor, noise: Tensor | None) -> Tensor:
    """Returns an actor's actions with gradients, float `[B, A]`.

    Args:
        features: The actor's outputs. Float `[B, A]`.
        noise: Gumbel noise, which makes a draw on the simplex of logits; None for actions tanh(features). `[B, A]`.

    Source: Jang et al. 2017, "Categorical Reparameterization with Gumbel-Softmax", eq. 2, at temperature 1.
    """
    return tf.tanh(features) if noise is None else tf.nn.softmax(features + noise)


def actor_loss(q: Tensor, features: Tensor, regularization: float) -> Tensor:
    """Returns the loss of an actor, a scalar.

        −mean Q(x, a_1, …, μ_i(o_i), …, a_N) + c · mean f²,  f the actor's outputs

    Args:
        q: The critic's values where the agent's own action is the actor's. Float `[B]`.
        features: The actor's outputs. Float `[B, A]`.
        regularization: c, which keeps logits from growing.

    Source: Lowe et al. 2017, eq. 5.
    """
    return -tf.reduce_mean(q) + regularization * tf.reduce_mean(tf.square(features))


def maddpg_losses(policy: MADDPGTFPolicy, model: Any, dist_class: Any, train_batch: SampleBatch) -> list[Tensor]:
    """Returns the losses of actor and critic, scalars; the actor's does not reach the critic's weights."""
    del dist_class
    actions, obs = train_batch[JOINT_ACTIONS], train_batch[JOINT_OBS]
    seen = policy.seen_by_critic(train_batch[JOINT_NEXT_OBS], train_batch[JOINT_NEXT_ACTIONS])
    q_tp1 = policy.target_network.model.q_values(*seen)
    q_t = model.q_values(*policy.seen_by_critic(obs, actions))
    td_error = td_errors(q_t, q_tp1, train_batch[REWARDS], train_batch[DISCOUNTS])
    features = model.features(tf.cast(train_batch[OBS], tf.float32))
    own, mine = policy.joint.own_actions, relaxed_actions(features, train_batch.get(NOISE))
    joint = tf.concat([actions[:, : own.start], mine, actions[:, own.stop :]], axis=1)
    q_mine = model.q_values(*policy.seen_by_critic(obs, joint), frozen=True)
    losses = [
        actor_loss(q_mine, features, policy.config["actor_feature_reg"] or 0.0),
        tf.reduce_mean(tf.square(td_error)),
    ]
    policy.keep(
        td_error=td_error,
        actor_loss=losses[0],
        critic_loss=losses[1],
        mean_q=tf.reduce_mean(q_t),
        min_q=tf.reduce_min(q_t),
        max_q=tf.reduce_max(q_t),
    )
    return losses


class MADDPGTFPolicy(MADDPGPolicy, TFPolicy):
    """An actor, a critic of what all agents see and do, and targets that follow both."""

    model_class = MADDPGTFModel

    def __init__(self, obs_space: gym.Space[Any], action_space: gym.Space[Any], config: dict[str, Any]) -> None:
        self.prepare(action_space, config)
        TFPolicy.__init__(self, obs_space, action_space, config)
        with tf.device(self.device), self.seeded("target"):
            self.target_network = TargetNetwork(self.model, self.make_model_and_dist()[0])
        self.target_models = {self.model: self.target_network.model}
        self._target_calls = TracedCalls(
            lambda columns, _: {"features": self.target_network.model.features(columns[NEXT_OBS])}
        )

    # --- parts ------------------------------------------------------------------------------------------------

    def optimizer(self) -> list[Adam]:
        """Returns Adam for the actor, with `actor_lr`, and for the critic, with `critic_lr`."""
        named = self.model.trainable_variables(as_dict=True)
        return [
            Adam({name: v for name, v in named.items() if self.part_of(name) == part}, self.learning_rate(part))
            for part in PARTS
        ]

    def target_features(self, new_obs: NDArray[Any]) -> NDArray[np.float32]:
        """Returns the target actor's outputs, float32 `[B, A]`, for observations [B, D]."""
        return np.asarray(self._target_calls({NEXT_OBS: np.asarray(new_obs, np.float32)}, {})["features"])

    # --- learning ---------------------------------------------------------------------------------------------

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> list[Tensor]:
        """Returns the losses of one batch; see `maddpg_losses`."""
        return maddpg_losses(self, model, dist_class, train_batch)

    def gradients(self, optimizer: Any, loss: Tensor) -> list[tuple[Any, Any]]:
        """Clips the norm of each weight array's gradient to `grad_norm_clipping`."""
        names, limit = optimizer.names(), self.config["grad_norm_clipping"]
        variables = self.model.trainable_variables(as_dict=True)
        pairs: list[tuple[Any, Any]] = optimizer.compute_gradients(loss, [variables[name] for name in names])
        norms = [tf.norm(gradient) for gradient, _ in pairs]
        self._grad_stats[f"{self.part_of(names[0])}_gnorm"] = tf.norm(tf.stack(norms))
        if not limit:
            return pairs
        scales = [limit / tf.maximum(norm, limit) for norm in norms]
        return [(gradient * scale, variable) for (gradient, variable), scale in zip(pairs, scales, strict=True)]

    def extra_grad_info(self, train_batch: SampleBatch) -> Stats:
        """Returns both losses and statistics of the critic's values."""
        return {name: value for name, value in self._loss_outputs.items() if name != "td_error"}

    def extra_compute_grad_fetches(self) -> dict[str, Any]:
        """Returns the TD errors of the batch and their mean."""
        if "td_error" not in self._loss_outputs:  # a user's own loss kept none
            return {}
        td_error = self._loss_outputs["td_error"]
        return {"td_error": td_error, "mean_td_error": tf.reduce_mean(td_error)}


__all__ = ["MADDPGTFPolicy", "actor_loss", "maddpg_losses", "relaxed_actions", "td_errors"]
