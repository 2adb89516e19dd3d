"""What RLlib's DQN and SimpleQ had of their own in TensorFlow, for policies that are made of functions."""

from __future__ import annotations

from typing import Any, TypeAlias

from rlframe.rllib1x import q_learning
from rlframe.utils.quiet_tf import tf

Tensor: TypeAlias = Any


def compute_q_values(
    policy: Any, model: Any, input_batch: Any, *args: Any, **kwargs: Any
) -> tuple[Tensor, Tensor, Tensor, list[Any]]:
    """Does what `rlframe.rllib1x.q_learning.compute_q_values` does, of what RLlib called `input_batch` here."""
    return q_learning.compute_q_values(policy, model, input_batch, *args, **kwargs)


def extra_action_out_fn(policy: Any) -> dict[str, Tensor]:
    """Returns the Q-values [B, A] that were acted on."""
    return {"q_values": policy.q_values}


def adam_optimizer(policy: Any, config: dict[str, Any]) -> Any:
    """Returns Adam with `lr` and `adam_epsilon` over the Q-network's variables."""
    return policy.adam(lr=getattr(policy, "cur_lr", config["lr"]), eps=config["adam_epsilon"])


class QLoss(q_learning.QLoss):
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
