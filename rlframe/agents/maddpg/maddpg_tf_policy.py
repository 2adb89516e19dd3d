"""MADDPG in TensorFlow: optimisers, targets and clipping; see `maddpg_policy`."""

from __future__ import annotations

from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlframe.agents.maddpg.maddpg_policy import (
    PARTS,
    MADDPGPolicy,
    actor_loss,
    maddpg_losses,
    relaxed_actions,
    td_errors,
)
from rlframe.agents.maddpg.maddpg_tf_model import MADDPGTFModel
from rlframe.data.columns import NEXT_OBS
from rlframe.policy.tf.adam import Adam
from rlframe.policy.tf.target import TargetNetwork
from rlframe.policy.tf.traced import TracedCalls
from rlframe.policy.tf_policy import TFPolicy
from rlframe.utils.quiet_tf import tf

Stats = dict[str, Any]
Tensor: TypeAlias = Any


class MADDPGTFPolicy(MADDPGPolicy, TFPolicy):
    """An actor, a critic of what all agents see and do, and targets that follow both."""

    model_class = MADDPGTFModel

    def __init__(self, obs_space: gym.Space[Any], action_space: gym.Space[Any], config: dict[str, Any]) -> None:
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


__all__ = ["MADDPGTFPolicy", "actor_loss", "maddpg_losses", "relaxed_actions", "td_errors"]
