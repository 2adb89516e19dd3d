"""What RLlib's DQN and SimpleQ were made of in TensorFlow, for policies that are made of functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from rlframe.agents.dqn.dqn_tf_model import DQNTFModel
from rlframe.agents.dqn.q_policy import Q_SCOPE, Q_TARGET_SCOPE, check_discrete, make_q_model, q_heads, q_output
from rlframe.models.tf.tf_action_dist import Categorical
from rlframe.rllib1x.q_learning import QLoss as EitherQLoss
from rlframe.rllib1x.q_learning import TargetNetworkMixin
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


class QLoss(EitherQLoss):
    """`rlframe.rllib1x.q_learning.QLoss` as RLlib's was in TensorFlow.

    Args:
        q_t_selected: Q(s, a). Float [B].
        q_logits_t_selected: Logits of its atoms, float [B, Z]; read with several.
        q_tp1_best: Q⁻(s', a*). Float [B].
        q_dist_tp1_best: Probabilities of its atoms, float [B, Z]; read with several.
        args: As there.
        kwargs: As there.
    """

    def __init__(
        self,
        q_t_selected: Tensor,
        q_logits_t_selected: Tensor | None,
        q_tp1_best: Tensor,
        q_dist_tp1_best: Tensor | None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__(q_t_selected, q_logits_t_selected, q_tp1_best, q_dist_tp1_best, *args, **kwargs)
        self.stats["mean_td_error"] = tf.reduce_mean(self.td_error)
