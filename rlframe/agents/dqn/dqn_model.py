"""Q-value heads on top of any trunk, for both frameworks."""

from __future__ import annotations

from typing import Any

from rlframe.agents.dqn.q_policy import QOutput
from rlframe.losses.q_learning import dueling_heads, expected_values
from rlframe.models.layer_owner import LayerOwner
from rlframe.models.modelv2 import ModelV2
from rlframe.models.spec import Atoms, Dense, Dueling, Layer, LayerNorm, NoisyDense
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor


class QHeads(LayerOwner, ModelV2):
    """Interface that DQN puts on a model: advantage and state-value heads, noisy or not, with one or many atoms.

        Q(s, a) = V(s) + A(s, a) − mean_a' A(s, a')           (dueling; per atom on logits when distributional)

    `model(input_dict)` gives the trunk's features; `q_values(features)` what the heads make of them. Without hidden
    layers, dueling and atoms there are no heads: the trunk's outputs are the Q-values.

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
    support: Tensor

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
        self.init_spec_owner()
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.num_atoms, self.v_min, self.v_max = num_atoms, v_min, v_max
        self.sigma0, self.use_noisy, self.add_layer_norm = sigma0, use_noisy, add_layer_norm
        self.dueling, self._activation = dueling, dueling_activation
        self.num_actions = int(action_space.n)
        plain = not q_hiddens and not dueling and num_atoms == 1 and not use_noisy
        advantage = () if plain else self._q_head("advantage", q_hiddens, self.num_actions * num_atoms)
        value = self._q_head("state_value", q_hiddens, num_atoms) if dueling else ()
        #: The layers of the heads, and how they are combined.
        self.advantage_layers, self.state_value_layers = advantage, value
        self.head_layers: tuple[Layer, ...] = (Dueling("q", advantage, value, num_atoms),) if dueling else advantage
        atoms = Atoms("support", self.num_actions, num_atoms, v_min, v_max)
        assert self.num_outputs is not None  # the policy says it
        #: Width of the features that the heads are made for: what the model said, which may be its own.
        self.trunk_width = self.num_outputs
        self.add_spec_layers((*self.head_layers, atoms), self.trunk_width)
        self._q_advantage, self._q_state_value = self.bind_spec(advantage), self.bind_spec(value)
        self._q_heads = self.bind_spec(self.head_layers)
        acting = (*self.head_layers, atoms) if num_atoms > 1 else self.head_layers
        self._q_spec = [layer.to_spec() for layer in acting]

    def _q_head(self, prefix: str, hiddens: tuple[int, ...], out: int) -> tuple[Layer, ...]:
        layers: list[Layer] = []
        for index, units in enumerate(hiddens):
            name, norm = f"{prefix}_{index}", self.add_layer_norm
            layers.append(self._q_layer(name, "linear" if norm else self._activation, int(units)))
            layers += [LayerNorm(f"{name}_norm", self._activation, int(units))] if norm else []
        return (*layers, self._q_layer(f"{prefix}_output", "linear", out))

    def _q_layer(self, name: str, activation: str, units: int) -> Layer:
        return NoisyDense(name, activation, units, self.sigma0) if self.use_noisy else Dense(name, activation, units)

    def q_values(self, features: Tensor) -> QOutput:
        """Returns Q-values [B, A] (and logits [B, A, Z] with atoms) of the trunk's features [B, num_outputs]."""
        if not self._has_own_heads():
            return self._q_of(self.run_spec(self._q_heads, features))
        scores = self.get_q_value_distributions(features)[0 if self.num_atoms == 1 else 2]
        return self.combine(ops.flat_rows(scores), self.get_state_value(features) if self.dueling else None)

    def combine(self, scores: Tensor, value: Tensor | None) -> QOutput:
        """Returns Q-values of the heads' outputs: advantages [B, A·Z], state values [B, Z] or None."""
        return self._q_of(scores if value is None else dueling_heads(value, scores, self.num_atoms))

    def _q_of(self, scores: Tensor) -> QOutput:
        """Returns Q-values of combined heads [B, A·Z]."""
        if self.num_atoms == 1:
            return QOutput(scores, None)
        logits = ops.split_last(scores, self.num_actions)
        return QOutput(expected_values(logits, self.support), logits)

    def _has_own_heads(self) -> bool:
        """Whether a subclass of the user's makes advantages or state values in another way."""
        own = type(self)
        return (
            own.get_q_value_distributions is not QHeads.get_q_value_distributions
            or own.get_state_value is not QHeads.get_state_value
        )

    def get_q_value_distributions(self, model_out: Tensor) -> tuple[Tensor, ...]:
        """Returns what the advantage head makes of the trunk's features [B, num_outputs]; override for another head.

        Returns:
            With one atom: scores [B, A], and twice ones [B, A, 1]. With Z: expected values [B, A], atoms [Z], logits
            [B, A, Z] twice, and their probabilities [B, A, Z].
        """
        return self.distributions_of(self.run_spec(self._q_advantage, model_out))

    def distributions_of(self, scores: Tensor) -> tuple[Tensor, ...]:
        """Returns what `get_q_value_distributions` does, of the advantage head's output [B, A·Z]."""
        if self.num_atoms == 1:
            ones = ops.ones_like(scores)[..., None]
            return scores, ones, ones
        logits = ops.split_last(scores, self.num_actions)
        probs = ops.softmax(logits)
        return expected_values(logits, self.support), self.support, logits, logits, probs

    def get_state_value(self, model_out: Tensor) -> Tensor:
        """Returns the state-value head's output [B, Z]; zeros without dueling. Override for another head."""
        if self.state_value_layers:
            return self.run_spec(self._q_state_value, model_out)
        return ops.zeros_like(model_out[:, :1]) + ops.zeros_like(self.support)

    def noisy_layers(self) -> list[Any]:
        """Returns the noisy layers, in the order in which they were made."""
        return [layer for layer in self.networks() if hasattr(layer, "weight_sigma")]

    def trunk_spec(self) -> dict[str, Any] | None:
        """Returns what a NumPy actor makes the trunk's features by; None where it is no chain of dense layers."""
        return None if self._has_own_heads() else super().actor_spec()

    def acting_heads(self) -> list[dict[str, Any]] | None:
        """Returns the layers from the trunk's features to Q-values, as plain data; None for heads of the user's own."""
        return None if self._has_own_heads() else self._q_spec

    def actor_spec(self) -> dict[str, Any] | None:
        """Returns what a NumPy actor acts by; None where `trunk_spec` gives none."""
        trunk = self.trunk_spec()
        return trunk and {**trunk, "outputs": [*trunk["outputs"], *self._q_spec], "values": None, "shared": 0}
