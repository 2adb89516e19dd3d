"""DQN in TensorFlow: the streams of noisy layers; see `dqn_policy`."""

from __future__ import annotations

from typing import Any

from rlframe.agents.dqn.dqn_policy import DoubleQLoss, DQNPolicy, build_q_losses
from rlframe.agents.dqn.simple_q_tf_policy import SimpleQTFPolicy
from rlframe.agents.families.n_step import postprocess_nstep_and_prio
from rlframe.models.tf.noisy import NoisyLayer
from rlframe.utils.quiet_tf import tf


class DQNTFPolicy(DQNPolicy, SimpleQTFPolicy):
    """SimpleQ's policy with dueling, distributional and noisy heads, and priorities computed by workers."""

    def __init__(self, obs_space: Any, action_space: Any, config: dict[str, Any]) -> None:
        self._noisy_network = bool(config["noisy"])
        SimpleQTFPolicy.__init__(self, obs_space, action_space, config)
        self._noisy_layers = _noisy_layers(self.model)
        for index, layer in enumerate(self._noisy_layers):
            layer.generator = self._generator("noise", index)
        for index, layer in enumerate(_noisy_layers(self.target_network.model)):
            # The target's noise is its own draw, and on: Fortunato et al. 2018, section 3.1.
            layer.noise, layer.generator = True, self._generator("target_noise", index)

    def _generator(self, *path: int | str) -> Any:
        return tf.random.Generator.from_seed(self.stream_seed(*path) % 2**63)


def _noisy_layers(model: Any) -> list[NoisyLayer]:
    """Returns the noisy layers of a model's heads, in the order in which they were made."""
    return [value for value in vars(model).values() if isinstance(value, NoisyLayer)]


__all__ = ["DQNTFPolicy", "DoubleQLoss", "build_q_losses", "postprocess_nstep_and_prio"]
