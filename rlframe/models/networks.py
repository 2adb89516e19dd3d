"""Models that are networks of `rlframe.models.spec`: what `rlframe.models.{torch,tf}.networks` have in common."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rlframe.data.columns import OBS
from rlframe.models.catalog import ModelCatalog
from rlframe.models.layer_owner import LayerOwner
from rlframe.models.modelv2 import IS_TRAINING, OBS_FLAT, ModelV2
from rlframe.models.recurrent_actor import behind_lstm
from rlframe.models.spec import GRU, LSTM, ActingView, CustomNetwork, Network, Part
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor
from rlframe.utils.errors import ConfigError


def side_by_side(inputs: tuple[Tensor, ...]) -> Tensor:
    """Returns tensors `[B, n]` as one, `[B, Σ n]`."""
    return inputs[0] if len(inputs) == 1 else ops.concat(inputs, 1)


class LayeredNetwork(LayerOwner):
    """A network of layers."""

    spec: Network

    def forward(self, *inputs: Tensor, training: bool = False, frozen: bool = False) -> Tensor:
        """Returns the output of inputs that stand side by side.

        Args:
            *inputs: In the order of `spec.inputs`. Float `[B, n]` each.
            training: Whether batch normalisation goes by the batch, and follows it.
            frozen: Whether nobody asks for gradients of its weights, which then may be left out.

        Returns:
            Float `[B, out_size]`.
        """
        return self.run_spec(self._layers, side_by_side(inputs), training=training, frozen=frozen)

    def unroll(self, x: Tensor, states: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Returns the outputs `[S, T, out_size]` of sequences `[S, T, n]`, and the states behind their last steps.

        Args:
            x: Inputs side by side.
            states: The recurrent layers' states before the first step, `[S, ...]` each, as in `initial_states`.
        """
        before, after = iter(states), []
        for layer, bound in zip(self.spec.layers, self._layers, strict=True):
            if isinstance(layer, GRU | LSTM):
                x, new = getattr(self, layer.name)(x, [next(before) for _ in range(layer.states)])
                after += new
            else:
                x = ops.split_sequences(self.run_spec((bound,), ops.flatten_sequences(x)), x)
        return x, after

    def initial_states(self) -> list[Any]:
        """Returns the states that a sequence begins with, arrays `[S]`."""
        return list(self.spec.initial_states())

    def _build(self, spec: Network, rng: np.random.Generator | None) -> None:
        self.spec = spec
        self.add_spec_layers(spec.layers, spec.in_size, rng)
        self._layers = self.bind_spec(spec.layers)


class CustomModelNetwork:
    """A user's `ModelV2` as a network: it gets the inputs side by side as its observation.

    In a loss it is told that it trains, unless it is a target network's: batch normalisation and dropout go by that.
    """

    spec: CustomNetwork
    model: Any
    training: bool

    def _build(self, spec: CustomNetwork, framework: str) -> None:
        self.spec = spec
        self.model = ModelCatalog.get_model_v2(*spec.spaces(), spec.out_size, dict(spec.config), framework)
        spec.check(self.model)

    def forward(self, *inputs: Tensor, training: bool = False, frozen: bool = False) -> Tensor:
        """Returns the model's outputs `[B, out_size]` for inputs `[B, n]` side by side."""
        del frozen
        rows = side_by_side(inputs)
        if self.spec.obs_space is not None:
            rows = ops.reshape(rows, (-1, *self.spec.obs_space.shape))
        return self.model({OBS: rows, IS_TRAINING: training or self.training})[0]

    def unroll(self, x: Tensor, states: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Returns the model's outputs `[S, T, out_size]` of sequences `[S, T, n]`, and the states behind them."""
        lens = ops.to_int(ops.sum(ops.ones_like(x[:, :, 0]), 1), 32)
        rows = ops.reshape(x, (-1, *self.spec.spaces()[0].shape))
        outputs, after = self.model({OBS: rows, IS_TRAINING: self.training}, states, lens)
        return ops.split_sequences(outputs, x), after

    def initial_states(self) -> list[Any]:
        """Returns the states that a sequence begins with, arrays `[S]`."""
        return list(self.model.get_initial_state())


class ActorCriticNames:
    """Names of RLlib's models of actors and critics: networks, their weights, and what they make of actions.

    What the model gives for observations, `model_out`, is that of the actor here, and brings along the features that it
    was made of; features alone will do.
    """

    acting: str

    def get_policy_output(self: Any, model_out: Tensor) -> Tensor:
        """Returns what the actor gives, `[B, num_outputs]`."""
        made: Tensor = getattr(self, self.acting)(_features_of(model_out))
        return made

    def get_q_values(self: Any, model_out: Tensor, actions: Tensor | None = None) -> Tensor:
        """Returns the first critic's values `[B, 1]` of actions `[B, A]`, or `[B, A]` of every choice."""
        made: Tensor = self.q(*_critic_inputs(model_out, actions))
        return made

    def get_twin_q_values(self: Any, model_out: Tensor, actions: Tensor | None = None) -> Tensor:
        """Returns what `get_q_values` does, of the second critic."""
        made: Tensor = self.twin_q(*_critic_inputs(model_out, actions))
        return made

    @property
    def action_model(self: Any) -> Any:
        """The actor's network as SAC called it; `policy_model` as DDPG did."""
        return self.actor

    @property
    def q_net(self: Any) -> Any:
        """The first critic's network as SAC called it; `q_model` as DDPG did."""
        return self.q

    @property
    def twin_q_net(self: Any) -> Any:
        """The second critic's network as SAC called it, None without one; `twin_q_model` as DDPG did."""
        return getattr(self, "twin_q", None)

    policy_model, q_model, twin_q_model = action_model, q_net, twin_q_net

    @property
    def alpha(self: Any) -> Tensor:
        """SAC's weight of the entropy, exp(log α), as RLlib's model in TensorFlow had it."""
        return ops.exp(self.log_alpha)

    def policy_variables(self: Any, as_dict: bool = False) -> Any:
        """Returns the actor's trainable weights, as a list or by name."""
        named = self.weights_of("actor")
        return named if as_dict else list(named.values())

    def q_variables(self: Any, as_dict: bool = False) -> Any:
        """Returns the critics' trainable weights, as a list or by name."""
        named = {**self.weights_of("q"), **self.weights_of("twin_q")}
        return named if as_dict else list(named.values())


class TargetNames(ActorCriticNames):
    """Names of RLlib's models for networks that follow others: losses of programs call them as they do the model."""

    acting = "actor"

    def forward(self: Any, input_dict: Any, state: Any = None, seq_lens: Any = None) -> tuple[Tensor, Any]:
        """Returns what the networks take for the observations, `[B, ...]`, and the state as it was."""
        del seq_lens
        return self.encode(input_dict[OBS], bool(input_dict.get(IS_TRAINING))), state or []


def _critic_inputs(model_out: Any, actions: Any) -> tuple[Tensor, ...]:
    features = _features_of(model_out)
    if actions is None:
        return (features,)
    return features, ops.flat_rows(ops.tensor_like(actions, features) if isinstance(actions, np.ndarray) else actions)


def _features_of(model_out: Any) -> Tensor:
    return getattr(model_out, _FEATURES, model_out)


#: The attribute of a model's outputs that holds the features which they were made of.
_FEATURES = "_rlframe_features"


class NetworksModel(ActorCriticNames, LayerOwner, ModelV2):
    """The networks of a policy as its model: each is an attribute, and so is each learned variable.

    Args:
        obs_space: Preprocessed observation space.
        action_space: Action space of the environment.
        num_outputs: Width of what the acting network gives.
        model_config: The `model` section of the config.
        name: Name of the model.
        parts: Networks and variables by name.
        acting: Name of the network that gives distribution inputs for observations.
        encoder: A `ModelV2` that makes features of observations for all of them; None where they take the observations.
        view: How the acting network sees observations that are not those of one agent; see `ActingView`.
        memory: Whether the encoder may be a model with states, which then are those of the policy.
    """

    #: No head of the acting network gives values.
    uses_value_function = False
    #: Whether a call gives what the networks take, not what the acting one makes of it; see `giving_features`.
    gives_features = False

    def __init__(  # noqa: PLR0913 - those of all models, and three
        self,
        obs_space: Any,
        action_space: Any,
        num_outputs: int,
        model_config: dict[str, Any],
        name: str,
        *,
        parts: Mapping[str, Part],
        acting: str,
        encoder: Any = None,
        view: ActingView | None = None,
        memory: bool = False,
    ) -> None:
        self.init_model_base(obs_space, action_space, num_outputs, model_config, name)
        self.parts, self.acting = dict(parts), acting
        self.encoder, self.view = encoder, view
        self.remembers = encoder is not None and bool(encoder.get_initial_state())
        if self.remembers and memory:
            self.view_requirements.update(encoder.view_requirements)
        elif self.remembers:
            raise ConfigError(
                f"model.custom_model: got {type(encoder).__name__}, which has memory; {name} wants features of "
                "single observations: use a model without states"
            )
        for part, spec in parts.items():
            self.add_part(part, spec)

    def add_part(self, name: str, spec: Part) -> None:
        """Makes a network or a variable, and the attribute that it is."""
        raise NotImplementedError

    def encode(self, obs: Tensor, training: bool = False) -> Tensor:
        """Returns what the networks take for observations `[B, ...]`: themselves, flat, or the encoder's features."""
        return ops.flat_rows(obs) if self.encoder is None else self.encoder({OBS: obs, IS_TRAINING: training})[0]

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns the acting network's outputs `[B, num_outputs]`, and the states behind each sequence."""
        if self.remembers:
            features, after = self.encoder(input_dict, state, seq_lens)
            return getattr(self, self.acting)(features), after
        # An encoder takes nested observations apart itself, and may want them flat.
        whole = self.encoder is not None and hasattr(input_dict[OBS], "shape")
        x = self.encode(input_dict[OBS if whole or OBS_FLAT not in input_dict else OBS_FLAT])
        network = getattr(self, self.acting)
        if self.view is not None:
            return self.view.act(network, x, state, seq_lens)
        if self.gives_features and not state:
            return x, state
        if not state:
            outputs = network(x)
            setattr(outputs, _FEATURES, x)
            return outputs, state
        outputs, after = network.unroll(ops.split_sequences(x, seq_lens), state)
        return ops.flatten_sequences(outputs), after

    def get_initial_state(self) -> list[Any]:
        """Returns what the acting network, or the encoder where it has memory, begins a sequence with."""
        if self.remembers:
            return list(self.encoder.get_initial_state())
        made = getattr(self, self.acting).initial_states()
        return made if self.view is None else self.view.states(made)

    def weights_of(self, part: str) -> dict[str, Any]:
        """Returns the trainable weights of a network, or a variable, by their names in the model."""
        found: Any = self.trainable_variables(as_dict=True)
        return {name: value for name, value in found.items() if name == part or name.startswith(f"{part}.")}

    def actor_spec(self) -> dict[str, Any] | None:
        """Returns what a NumPy actor acts by; None where acting needs an encoder that is no LSTM, or a user's model."""
        spec = self.parts[self.acting]
        if self.remembers and isinstance(spec, Network):
            return behind_lstm(self.encoder.actor_spec(), "encoder", spec.prefixed(self.acting))
        if self.encoder is not None or not isinstance(spec, Network):
            return None
        return {"outputs": spec.prefixed(self.acting), "values": None, "shared": 0}


@contextlib.contextmanager
def acting_in_loss(model: Any) -> Iterator[None]:
    """Has a call of actor and critics give the actor's outputs again, where a program's loss lets its policy act."""
    model.gives_features = False
    try:
        yield
    finally:
        model.gives_features = True


@contextlib.contextmanager
def giving_features(model: Any) -> Iterator[None]:
    """Has a call of actor and critics give features, `[B, F]`, as in RLlib.

    Losses of programs call models so, and may repeat, slice or join the features before they ask for values. Of other
    models, and of those with memory, nothing changes.

    Args:
        model: Any model.
    """
    if not isinstance(model, NetworksModel) or not {"actor", "q"} <= model.parts.keys():
        yield
        return
    model.gives_features = True
    try:
        yield
    finally:
        model.gives_features = False
