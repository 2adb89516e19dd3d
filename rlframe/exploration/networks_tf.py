"""Networks that explorations learn, in TensorFlow; `networks_torch` has the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.exploration.intrinsic import Features, features_of
from rlframe.models.spec import Network
from rlframe.models.tf.misc import seeded_initial_weights
from rlframe.models.tf.networks import TFNetwork
from rlframe.utils.quiet_tf import tf

Array = NDArray[Any]
State = dict[str, Any]

_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-8


class Networks:
    """Named networks, and Adam over those that learn.

    Args:
        obs_space: Preprocessed observation space.
        action_space: The environment's action space.
        parts: Networks by name.
        learning: Names of those that learn.
        lr: Learning rate.
        seed: Of the initial weights.

    Source: Kingma and Ba 2015, "Adam: A Method for Stochastic Optimization", algorithm 1.
    """

    def __init__(
        self,
        obs_space: Any,
        action_space: Any,
        parts: Mapping[str, Network | Features],
        learning: Sequence[str],
        lr: float,
        seed: int,
    ) -> None:
        self.modules: dict[str, Any] = {}
        with seeded_initial_weights(seed):
            for name, part in parts.items():
                self.modules[name] = (
                    TFNetwork(part) if isinstance(part, Network) else features_of(part, obs_space, action_space, "tf")
                )
        self._of_obs = {name for name, part in parts.items() if isinstance(part, Features)}
        self.lr, self.steps = lr, 0
        self.parameters = {
            f"{name}.{own}": variable
            for name in learning
            for own, variable in self.modules[name].named_trainable_variables().items()
        }
        self.moments: dict[str, dict[str, Any]] = {
            key: {name: tf.zeros_like(variable) for name, variable in self.parameters.items()}
            for key in ("exp_avg", "exp_avg_sq")
        }

    def __call__(self, name: str, *inputs: Any) -> Any:
        """Returns what a network gives, `[B, n]`, for tensors `[B, ...]`."""
        return self.modules[name]({"obs": inputs[0]})[0] if name in self._of_obs else self.modules[name](*inputs)

    def compute(self, name: str, *inputs: Array) -> Array:
        """Returns what a network gives, float32 `[B, n]`, for arrays `[B, ...]`."""
        return np.array(self(name, *map(_tensor, inputs)).numpy())

    def learn(self, loss: Callable[..., tuple[Any, Any]], *inputs: Array) -> Array:
        """Does one Adam step.

        Args:
            loss: `fn(networks, *tensors)` that returns the loss, a scalar, and a number per row `[B]`.
            *inputs: Arrays of which the tensors are made.

        Returns:
            The number per row, float32 `[B]`, before the step.
        """
        with tf.GradientTape() as tape:
            total, per_row = loss(self, *map(_tensor, inputs))
        self.steps += 1
        rate = self.lr / (1.0 - _BETA_1**self.steps)
        gradients = tape.gradient(total, list(self.parameters.values()))
        for (name, variable), gradient in zip(self.parameters.items(), gradients, strict=True):
            if gradient is None:
                continue
            mean = _BETA_1 * self.moments["exp_avg"][name] + (1.0 - _BETA_1) * gradient
            square = _BETA_2 * self.moments["exp_avg_sq"][name] + (1.0 - _BETA_2) * tf.square(gradient)
            self.moments["exp_avg"][name], self.moments["exp_avg_sq"][name] = mean, square
            variable.assign_sub(rate * mean / (tf.sqrt(square / (1.0 - _BETA_2**self.steps)) + _EPSILON))
        return np.array(per_row.numpy())

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


def _tensor(array: Any) -> Any:
    """Returns an array as a tensor, float32 where it is floating."""
    made = np.asarray(array)
    return tf.constant(made.astype(np.float32) if made.dtype.kind == "f" else made)
