"""What RLlib's DQN and SimpleQ were made of in TensorFlow, for policies that are made of functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from rlframe.agents.dqn.dqn_tf_model import DQNTFModel, q_output
from rlframe.agents.dqn.q_policy import Q_SCOPE, Q_TARGET_SCOPE, check_discrete, make_q_model, q_heads
from rlframe.agents.dqn.simple_q_tf_policy import TargetNetworkMixin
from rlframe.losses.q_learning import (
    categorical_q_loss,
    huber,
    project_distribution,
)
from rlframe.models.tf.tf_action_dist import Categorical
from rlframe.utils.quiet_tf import tf

Tensor: TypeAlias = Any


def build_q_model(policy: Any, obs_space: Any, action_space: Any, config: dict[str, Any]) -> Any:
    """Returns DQN's Q-network; sets `policy.target_model`.

    Raises:
        UnsupportedSpaceException: If actions are not Discrete.
    """
    return _build(policy, obs_space, action_space, q_heads(config))


def build_q_models(policy: Any, obs_space: Any, action_space: Any, config: dict[str, Any]) -> Any:
    """Returns SimpleQ's Q-network, whose outputs are the Q-values; sets `policy.target_model`.

    Raises:
        UnsupportedSpaceException: If actions are not Discrete.
    """
    del config
    return _build(policy, obs_space, action_space, {"q_hiddens": (), "dueling": False})


def _build(policy: Any, obs_space: Any, action_space: Any, heads: Mapping[str, Any]) -> Any:
    check_discrete(type(policy).__name__, action_space)
    policy.observation_space, policy.action_space = obs_space, action_space
    model = make_q_model(policy, DQNTFModel, heads, Q_SCOPE)[0]
    policy.target_model = make_q_model(policy, DQNTFModel, heads, Q_TARGET_SCOPE)[0]
    return model


def setup_late_mixins(policy: Any, obs_space: Any, action_space: Any, config: dict[str, Any]) -> None:
    """Makes the target network of a policy with a `TargetNetworkMixin`, once the model is there."""
    TargetNetworkMixin.__init__(policy, obs_space, action_space, config)


def compute_q_values(
    policy: Any,
    model: Any,
    input_batch: Any,
    state_batches: Any = None,
    seq_lens: Any = None,
    explore: Any = None,
    is_training: bool = False,
) -> tuple[Tensor, Tensor, Tensor, list[Any]]:
    """Returns Q-values [B, A], logits and probabilities of the value's atoms [B, A, Z], and new states.

    With one atom both are ones. `explore` changes nothing: noisy layers are noisy while training.
    """
    del policy, explore
    inputs = input_batch if hasattr(input_batch, "set_training") else {"is_training": is_training, **input_batch}
    features, state = model(inputs, state_batches or [], seq_lens)
    made = model.q_values(features)
    if made.logits is None:
        ones = tf.ones_like(made.q)[..., None]
        return made.q, ones, ones, state
    return made.q, made.logits, tf.nn.softmax(made.logits), state


def compute_simple_q_values(policy: Any, model: Any, obs: Any, explore: Any, is_training: Any = None) -> Tensor:
    """Returns a model's Q-values [B, A] of observations [B, ...]."""
    del policy, explore
    return q_output(model, obs, training=bool(is_training)).q


def get_distribution_inputs_and_class(
    policy: Any, model: Any, input_dict: Any, *, explore: bool = True, is_training: bool = False, **kwargs: Any
) -> tuple[Tensor, Any, list[Any]]:
    """Returns Q-values [B, A], their distribution class, and new states; keeps them as `policy.q_values`."""
    del kwargs
    policy.q_values = compute_q_values(policy, model, input_dict, explore=explore, is_training=is_training)[0]
    model.tower_stats["q_values"] = policy.q_values
    return policy.q_values, Categorical, []


def get_simple_distribution_inputs_and_class(
    policy: Any, q_model: Any, obs_batch: Any, *, explore: bool = True, is_training: bool = True, **kwargs: Any
) -> tuple[Tensor, Any, list[Any]]:
    """Returns Q-values [B, A], their distribution class, and new states; keeps them as `policy.q_values`."""
    del kwargs
    policy.q_values = compute_simple_q_values(policy, q_model, obs_batch, explore, is_training)
    return policy.q_values, Categorical, []


def extra_action_out_fn(policy: Any) -> dict[str, Tensor]:
    """Returns the Q-values [B, A] that were acted on."""
    return {"q_values": policy.q_values}


def adam_optimizer(policy: Any, config: dict[str, Any]) -> Any:
    """Returns Adam with `lr` and `adam_epsilon` over the Q-network's variables."""
    return policy.adam(lr=getattr(policy, "cur_lr", config["lr"]), eps=config["adam_epsilon"])


class QLoss:
    """The loss of Q-values that were selected by the caller.

    Args:
        q_t_selected: Q(s, a). Float [B].
        q_logits_t_selected: Logits of its atoms, float [B, Z]; read with several.
        q_tp1_best: Q⁻(s', a*). Float [B].
        q_dist_tp1_best: Probabilities of its atoms, float [B, Z]; read with several.
        importance_weights: Float [B].
        rewards: Float [B].
        done_mask: Where the episode terminated. Float [B].
        gamma: Discount per step.
        n_step: Rewards that were summed.
        num_atoms: Z.
        v_min: Smallest atom.
        v_max: Largest atom.

    Attributes:
        loss: Scalar.
        td_error: Float [B].
        stats: Scalars for the report.

    Source: Mnih et al. 2015, algorithm 1; Bellemare et al. 2017, algorithm 1.
    """

    def __init__(
        self,
        q_t_selected: Tensor,
        q_logits_t_selected: Tensor | None,
        q_tp1_best: Tensor,
        q_dist_tp1_best: Tensor | None,
        importance_weights: Tensor,
        rewards: Tensor,
        done_mask: Tensor,
        gamma: float = 0.99,
        n_step: int = 1,
        num_atoms: int = 1,
        v_min: float = -10.0,
        v_max: float = 10.0,
    ) -> None:
        discounts = gamma**n_step * (1.0 - tf.cast(done_mask, tf.float32))
        self.stats: dict[str, Tensor] = {}
        if num_atoms > 1:
            assert q_logits_t_selected is not None
            assert q_dist_tp1_best is not None
            atoms = tf.linspace(v_min, v_max, num_atoms)
            target = project_distribution(tf.stop_gradient(q_dist_tp1_best), rewards, discounts, atoms)
            per_row = self.td_error = categorical_q_loss(q_logits_t_selected, target)
        else:
            self.td_error = q_t_selected - tf.stop_gradient(rewards + discounts * q_tp1_best)
            per_row = huber(self.td_error)
            self.stats = {
                "mean_q": tf.reduce_mean(q_t_selected),
                "min_q": tf.reduce_min(q_t_selected),
                "max_q": tf.reduce_max(q_t_selected),
            }
        self.stats["mean_td_error"] = tf.reduce_mean(self.td_error)
        self.loss = tf.reduce_mean(tf.cast(importance_weights, tf.float32) * per_row)
