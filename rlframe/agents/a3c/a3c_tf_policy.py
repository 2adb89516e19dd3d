"""A2C and A3C in TensorFlow: the learner step; see `a3c_policy`."""

from __future__ import annotations

from typing import Any, TypeAlias

from rlframe.agents.a3c.a3c_policy import A3CPolicy, actor_critic_loss
from rlframe.policy.tf_policy import TFPolicy

Tensor: TypeAlias = Any


class A3CTFPolicy(A3CPolicy, TFPolicy):
    """An actor with a critic, trained on advantages."""

    learn_scalars = (*TFPolicy.learn_scalars, "rows_learned")

    def __init__(self, obs_space: Any, action_space: Any, config: dict[str, Any]) -> None:
        self.setup_mixins(config)
        TFPolicy.__init__(self, obs_space, action_space, config)

    def gradients(self, optimizer: Any, loss: Tensor) -> list[tuple[Any, Any]]:
        """Clips the gradient's global norm to `grad_clip`."""
        return self.clip_gradients(super().gradients(optimizer, loss), self.for_means(self.config["grad_clip"]))


__all__ = ["A3CTFPolicy", "actor_critic_loss"]
