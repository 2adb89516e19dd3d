"""The networks of intrinsic rewards in TensorFlow; `networks_torch` has the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.models.catalog import ModelCatalog, features_class
from rlframe.models.tf.misc import activation_function, initial_rng, seeded_initial_weights, xavier_uniform
from rlframe.models.tf.variables import VariableOwner
from rlframe.utils.quiet_tf import tf

Array = NDArray[Any]
State = dict[str, Any]
#: Hidden layers and their activation.
Hidden = tuple[Sequence[int], str]

_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-8


class Networks:
    """Named networks, and Adam over those that learn.

    Args:
        networks: Networks by name.
        learning: Names of those that learn.
        lr: Learning rate.

    Source: Kingma and Ba 2015, "Adam: A Method for Stochastic Optimization", algorithm 1.
    """

    def __init__(self, networks: Mapping[str, Any], learning: Sequence[str] = (), lr: float = 1e-3) -> None:
        self.modules, self.lr, self.steps = dict(networks), lr, 0
        self.parameters = {
            f"{name}.{own}": variable
            for name in learning
            for own, variable in self.modules[name].named_trainable_variables().items()
        }
        self.moments: dict[str, dict[str, Any]] = {
            key: {name: tf.zeros_like(variable) for name, variable in self.parameters.items()}
            for key in ("exp_avg", "exp_avg_sq")
        }

    def step(self, loss: Any, tape: Any) -> None:
        """Does one Adam step on a loss."""
        self.steps += 1
        rate = self.lr / (1.0 - _BETA_1**self.steps)
        gradients = tape.gradient(loss, list(self.parameters.values()))
        for (name, variable), gradient in zip(self.parameters.items(), gradients, strict=True):
            if gradient is None:
                continue
            mean = _BETA_1 * self.moments["exp_avg"][name] + (1.0 - _BETA_1) * gradient
            square = _BETA_2 * self.moments["exp_avg_sq"][name] + (1.0 - _BETA_2) * tf.square(gradient)
            self.moments["exp_avg"][name], self.moments["exp_avg_sq"][name] = mean, square
            variable.assign_sub(rate * mean / (tf.sqrt(square / (1.0 - _BETA_2**self.steps)) + _EPSILON))

    def get_state(self) -> State:
        """Returns weights and Adam's moments by name, and the number of steps."""
        moments = {
            key: {name: np.array(tensor.numpy()) for name, tensor in named.items() if self.steps}
            for key, named in self.moments.items()
        }
        weights = {name: np.array(variable.numpy()) for name, variable in self._variables().items()}
        return {"weights": weights, "step": self.steps, **moments}

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` returned, here or in the other framework."""
        for name, variable in self._variables().items():
            variable.assign(state["weights"][name])
        self.steps = int(state["step"])
        for key in self.moments:
            self.moments[key].update({name: tf.constant(array) for name, array in state[key].items()})

    def _variables(self) -> dict[str, Any]:
        return {
            f"{name}.{own}": variable
            for name, module in self.modules.items()
            for own, variable in module.named_variables().items()
        }


class CuriosityNetworks(Networks):
    """Features, inverse and forward model; see `rlframe.exploration.curiosity.Curiosity`.

    Args:
        obs_space: Preprocessed observation space.
        action_space: The environment's action space.
        counts: Choices of each component of actions.
        feature_dim: Size of the features, F.
        config: The `model` section of the features' network.
        inverse: Hidden layers and activation of the inverse model.
        forward: Hidden layers and activation of the forward model.
        beta: Weight of the forward model's loss.
        lr: Learning rate.
        seed: Of the initial weights.
    """

    def __init__(  # noqa: PLR0913
        self,
        obs_space: Any,
        action_space: Any,
        *,
        counts: Sequence[int],
        feature_dim: int,
        config: dict[str, Any],
        inverse: Hidden,
        forward: Hidden,
        beta: float,
        lr: float,
        seed: int,
    ) -> None:
        with seeded_initial_weights(seed):
            networks = {
                "features": _features(obs_space, action_space, feature_dim, config),
                "inverse": _Dense(2 * feature_dim, inverse, sum(counts)),
                "prediction": _Dense(feature_dim + sum(counts), forward, feature_dim),
            }
        super().__init__(networks, tuple(networks), lr)
        self.counts, self.beta = list(counts), beta

    def learn(self, obs: Array, next_obs: Array, actions: Array) -> Array:
        """Returns ½ ‖ φ̂(s_{t+1}) − φ(s_{t+1}) ‖² of each row, float32 `[B]`, then does a step on the loss.

        Args:
            obs: `[B, ...]`.
            next_obs: `[B, ...]`.
            actions: One-hot choices, float `[B, sum of counts]`.
        """
        both, taken = tf.constant(np.concatenate([obs, next_obs])), tf.constant(actions, tf.float32)
        with tf.GradientTape() as tape:
            phi, next_phi = tf.split(self.modules["features"]({"obs": both})[0], 2)
            predicted = self.modules["prediction"](tf.concat([phi, taken], axis=1))
            missed = 0.5 * tf.reduce_sum(tf.square(predicted - next_phi), axis=1)
            logits = tf.split(self.modules["inverse"](tf.concat([phi, next_phi], axis=1)), self.counts, axis=1)
            logp = tf.concat([tf.nn.log_softmax(part) for part in logits], axis=1)
            unlikely = -tf.reduce_mean(tf.reduce_sum(taken * logp, axis=1))
            loss = (1.0 - self.beta) * unlikely + self.beta * tf.reduce_mean(missed)
        self.step(loss, tape)
        return np.array(missed.numpy())


class DistillationNetworks(Networks):
    """A random network, and one that learns to foretell it; see `RND`.

    Args:
        obs_space: Preprocessed observation space.
        action_space: The environment's action space.
        embed_dim: Size of what is foretold.
        config: The `model` section of both networks.
        lr: Learning rate.
        seed: Of the initial weights.
    """

    def __init__(
        self, obs_space: Any, action_space: Any, *, embed_dim: int, config: dict[str, Any], lr: float, seed: int
    ) -> None:
        with seeded_initial_weights(seed):
            made = {name: _features(obs_space, action_space, embed_dim, config) for name in ("target", "prediction")}
        super().__init__(made, ("prediction",), lr)

    def learn(self, obs: Array) -> Array:
        """Returns the mean squared error of each row, float32 `[B]`, then does a step on their mean."""
        given = {"obs": tf.constant(obs)}
        target = self.modules["target"](given)[0]
        with tf.GradientTape() as tape:
            missed = tf.reduce_mean(tf.square(self.modules["prediction"](given)[0] - target), axis=1)
            loss = tf.reduce_mean(missed)
        self.step(loss, tape)
        return np.array(missed.numpy())


class RandomEncoder(Networks):
    """A random network that stays as it is; see `RE3`.

    Args:
        obs_space: Preprocessed observation space.
        action_space: The environment's action space.
        embeds_dim: Size of the features.
        config: The `model` section of the network.
        seed: Of the weights.
    """

    def __init__(self, obs_space: Any, action_space: Any, embeds_dim: int, config: dict[str, Any], seed: int) -> None:
        with seeded_initial_weights(seed):
            super().__init__({"encoder": _features(obs_space, action_space, embeds_dim, config)})

    def encode(self, obs: Array) -> Array:
        """Returns features, float32 `[B, D]`, of observations `[B, ...]`."""
        return np.array(self.modules["encoder"]({"obs": tf.constant(obs)})[0].numpy())


class _Dense(VariableOwner):
    """Dense layers with Xavier-uniform weights; the last one is linear."""

    def __init__(self, in_size: int, hidden: Hidden, out_size: int) -> None:
        widths, self.activation = [in_size, *hidden[0], out_size], activation_function(hidden[1])
        self.layers = len(widths) - 1
        for index, (a, b) in enumerate(pairwise(widths)):
            self.add_weight(f"{index}.weight", xavier_uniform(initial_rng(), (b, a)))
            self.add_weight(f"{index}.bias", np.zeros(b, np.float32))

    def __call__(self, x: Any) -> Any:
        for index in range(self.layers - 1):
            x = self.dense(str(index), x)
            x = x if self.activation is None else self.activation(x)
        return self.dense(str(self.layers - 1), x)


def _features(obs_space: Any, action_space: Any, size: int, config: dict[str, Any]) -> Any:
    """Returns a model from observations to `size` features, without a value head."""
    model = features_class(obs_space, config, "tf")
    return ModelCatalog.get_model_v2(obs_space, action_space, size, config, "tf", default_model=model)
