"""Q-value heads on top of any trunk, in TensorFlow."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from rlframe.agents.dqn.q_policy import QOutput
from rlframe.losses.q_learning import dueling as dueling_q
from rlframe.models.spec import Dense, Layer, LayerNorm, NoisyDense
from rlframe.models.tf.misc import activation_function, initial_rng
from rlframe.models.tf.noisy import NoisyLayer
from rlframe.models.tf.tf_modelv2 import TFModelV2
from rlframe.utils.quiet_tf import tf

Tensor: TypeAlias = Any
#: ε of layer normalisation, as torch and the NumPy actor have it.
_NORM_EPS = 1e-5


class DQNTFModel(TFModelV2):
    """Interface that DQN puts on a model: advantage and state-value heads, noisy or not, with one or many atoms.

        Q(s, a) = V(s) + A(s, a) − mean_a' A(s, a')           (dueling; per atom on logits when distributional)

    `model(input_dict)` gives the trunk's features; `q_values(features)` what the heads make of them. Without hidden
    layers, dueling and atoms there are no heads: the trunk's outputs are the Q-values. Weights have the names and
    layouts of `DQNTorchModel`.

    Args:
        obs_space: Preprocessed observation space.
        action_space: A Discrete space with A actions.
        num_outputs: Width of the trunk's features.
        model_config: The `model` section of the config.
        name: Name of the model.
        q_hiddens: Hidden layers of each head.
        dueling: Whether there is a state-value head.
        dueling_activation: Of the heads' hidden layers.
        num_atoms: Z; 1 for expected values.
        use_noisy: Whether the heads are noisy.
        v_min: Smallest atom.
        v_max: Largest atom.
        sigma0: Initial noise.
        add_layer_norm: Whether each hidden layer of a head is normalised (for parameter noise).

    Source: Wang et al. 2016 (dueling, eq. 9); Bellemare et al. 2017 (atoms); Fortunato et al. 2018 (noise).
    """

    #: The trunk needs no value function of its own.
    uses_value_function = False

    def __init__(
        self,
        obs_space: Any,
        action_space: Any,
        num_outputs: int | None,
        model_config: dict[str, Any],
        name: str,
        *,
        q_hiddens: tuple[int, ...] = (256,),
        dueling: bool = False,
        dueling_activation: str = "relu",
        num_atoms: int = 1,
        use_noisy: bool = False,
        v_min: float = -10.0,
        v_max: float = 10.0,
        sigma0: float = 0.5,
        add_layer_norm: bool = False,
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.num_atoms, self.v_min, self.v_max = num_atoms, v_min, v_max
        self.sigma0, self.use_noisy, self.add_layer_norm = sigma0, use_noisy, add_layer_norm
        self.dueling, self._activation = dueling, dueling_activation
        actions = int(action_space.n)
        self.num_actions = actions
        plain = not q_hiddens and not dueling and num_atoms == 1 and not use_noisy
        self.advantage_layers: list[Layer] = (
            [] if plain else self._make_head("advantage", q_hiddens, actions * num_atoms)
        )
        self.state_value_layers: list[Layer] = self._make_head("state_value", q_hiddens, num_atoms) if dueling else []
        self.support = tf.constant(np.linspace(v_min, v_max, num_atoms, dtype=np.float32))

    def _make_head(self, prefix: str, hiddens: tuple[int, ...], out: int) -> list[Layer]:
        layers: list[Layer] = []
        assert self.num_outputs is not None  # the policy says it
        width = int(self.num_outputs)
        for index, units in enumerate(hiddens):
            layers += self._make_layer(
                f"{prefix}_{index}", width, int(units), self._activation, norm=self.add_layer_norm
            )
            width = int(units)
        return layers + self._make_layer(f"{prefix}_output", width, out, "linear", norm=False)

    def _make_layer(self, name: str, width: int, units: int, activation: str, *, norm: bool) -> list[Layer]:
        if self.use_noisy:
            setattr(self, name, NoisyLayer(width, units, self.sigma0, activation=None))
        else:
            # PyTorch's initial weights of linear layers, uniform in ±1/√in, so that both frameworks start alike.
            bound, rng = 1.0 / math.sqrt(width), initial_rng()
            self.add_weight(f"{name}.weight", rng.uniform(-bound, bound, (units, width)).astype(np.float32))
            self.add_weight(f"{name}.bias", rng.uniform(-bound, bound, units).astype(np.float32))
        kind = NoisyDense if self.use_noisy else Dense
        if not norm:
            return [kind(name, activation, units)]
        self.add_weight(f"{name}_norm.weight", np.ones(units, np.float32))
        self.add_weight(f"{name}_norm.bias", np.zeros(units, np.float32))
        return [kind(name, "linear", units), LayerNorm(f"{name}_norm", activation, units)]

    def _run_q_layers(self, layers: list[Layer], x: Tensor) -> Tensor:
        for layer in layers:
            if isinstance(layer, LayerNorm):
                mean, variance = tf.nn.moments(x, axes=[-1], keepdims=True)
                x = (x - mean) * tf.math.rsqrt(variance + _NORM_EPS)
                x = x * self.get_weight(f"{layer.name}.weight") + self.get_weight(f"{layer.name}.bias")
            else:
                x = getattr(self, layer.name)(x) if self.use_noisy else TFModelV2.dense(self, layer.name, x)
            activation = activation_function(getattr(layer, "activation", None))
            x = x if activation is None else activation(x)
        return x

    def q_values(self, features: Tensor) -> QOutput:
        """Returns Q-values [B, A] (and logits [B, A, Z] with atoms) of the trunk's features [B, num_outputs]."""
        if self._has_own_heads():
            scores = self.get_q_value_distributions(features)[0 if self.num_atoms == 1 else 2]
            flat = tf.reshape(scores, [tf.shape(scores)[0], -1])
            return self.combine(flat, self.get_state_value(features) if self.dueling else None)
        scores = self._run_q_layers(self.advantage_layers, features)
        value = self._run_q_layers(self.state_value_layers, features) if self.state_value_layers else None
        return self.combine(scores, value)

    def _has_own_heads(self) -> bool:
        """Whether a subclass of the user's makes advantages or state values in another way."""
        own, plain = type(self), DQNTFModel
        return (
            own.get_q_value_distributions is not plain.get_q_value_distributions
            or own.get_state_value is not plain.get_state_value
        )

    def get_q_value_distributions(self, model_out: Tensor) -> tuple[Tensor, ...]:
        """Returns what the advantage head makes of the trunk's features [B, num_outputs]; override for another head.

        Returns:
            With one atom: scores [B, A], and twice ones [B, A, 1]. With Z: expected values [B, A], atoms [Z], logits
            [B, A, Z] twice, and their probabilities [B, A, Z].
        """
        scores = self._run_q_layers(self.advantage_layers, model_out)
        if self.num_atoms == 1:
            ones = tf.ones_like(scores)[..., None]
            return scores, ones, ones
        logits = tf.reshape(scores, [-1, self.num_actions, self.num_atoms])
        probs = tf.nn.softmax(logits)
        return tf.linalg.matvec(probs, self.support), self.support, logits, logits, probs

    def noisy_layers(self) -> list[Any]:
        """Returns the heads' noisy layers, in the order in which they were made."""
        return [layer for layer in vars(self).values() if isinstance(layer, NoisyLayer)]

    def combine(self, scores: Tensor, value: Tensor | None) -> QOutput:
        """Returns Q-values of the heads' outputs: advantages [B, A·Z], state values [B, Z] or None."""
        if self.num_atoms == 1:
            if value is not None:
                scores = dueling_q(value, scores)
            return QOutput(scores, None)
        logits = tf.reshape(scores, [-1, self.num_actions, self.num_atoms])
        if value is not None:
            logits = dueling_q(value[:, None], logits)
        return QOutput(tf.linalg.matvec(tf.nn.softmax(logits), self.support), logits)

    def get_state_value(self, model_out: Tensor) -> Tensor:
        """Returns the state-value head's output [B, Z]; zeros without dueling. Override for another head."""
        if not self.state_value_layers:
            return tf.zeros([tf.shape(model_out)[0], self.num_atoms], model_out.dtype)
        return self._run_q_layers(self.state_value_layers, model_out)

    def actor_spec(self) -> dict[str, Any] | None:
        """Returns what `QActor` acts by; None when the trunk is no chain of dense layers."""
        trunk = super().actor_spec()
        if trunk is None or self._has_own_heads():
            return None
        return {
            "trunk": {"outputs": trunk["outputs"], "values": None, "shared": 0},
            "advantage": [layer.to_spec() for layer in self.advantage_layers],
            "state_value": [layer.to_spec() for layer in self.state_value_layers] or None,
            "num_atoms": self.num_atoms,
            "v_min": self.v_min,
            "v_max": self.v_max,
        }


#: The interface by a name that is the same in both frameworks.
DQNModel = DQNTFModel
