"""The networks whose weights are searched by noise: dense ones in NumPy, all others in their framework."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlframe.config.common import ONLY_EVALUATES
from rlframe.models.catalog import default_network
from rlframe.models.fcnet_spec import fcnet_spec
from rlframe.models.recurrent_actor import make_actor
from rlframe.models.spec import Dense, Layer
from rlframe.policy.backends import with_backend
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.utils.framework import require_framework

Arrays = dict[str, NDArray[np.float32]]


class DenseNetwork:
    """The default network of vectors.

    Args:
        obs_space: Of vectors.
        num_outputs: Width of the outputs.
        model_config: Keys `fcnet_hiddens` and the like.
        rng: Draws the weights.
    """

    def __init__(
        self, obs_space: gym.Space[Any], num_outputs: int, model_config: Mapping[str, Any], rng: np.random.Generator
    ) -> None:
        self._spec = fcnet_spec(num_outputs, {**model_config, "free_log_std": False}, values=False)
        self.arrays: Arrays = {}
        width = math.prod(obs_space.shape or ())
        for layer in self._spec.outputs:
            assert isinstance(layer, Dense)  # none else is in such networks
            weights = layer.initial.draw(rng, int(layer.units or 0), width)
            self.arrays[f"{layer.name}.weight"], self.arrays[f"{layer.name}.bias"] = weights
            width = int(layer.units or 0)

    @staticmethod
    def fits(policy: Any) -> bool:
        """Returns whether a policy's config and observations ask for such a network."""
        model = policy.config["model"]
        own = model.get("custom_model") or model.get("custom_action_dist")
        return default_network(policy.observation_space) == "fcnet" and not own

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Its layers."""
        return self._spec.outputs

    def actor(self, arrays: Mapping[str, NDArray[Any]]) -> Any:
        """Returns what has `forward(obs [B, ...]) -> outputs [B, K]` with other weights."""
        return make_actor(self._spec.to_spec(), arrays)

    def model(self, arrays: Mapping[str, NDArray[Any]]) -> Any:
        """Raises an AttributeError: there is none."""
        raise AttributeError(
            "the default network of vectors acts in NumPy, and is no framework's model; see get_weights()"
        )


class FrameworkNetwork:
    """A model of the catalog, the user's own or a default one, and the distribution of its actions.

    All parameters that gradients would change are searched, those of a value function with them, as RLlib's were.

    Args:
        policy: Whose spaces and config it is made for.
    """

    layers = None

    def __init__(self, policy: Any) -> None:
        acting = type("ActingPolicy", (LearningPolicy,), {"dist_type": policy.dist_type, "__module__": __name__})
        made = with_backend(acting, require_framework(policy.config["framework"]), "ActingPolicy")
        config = {**policy.config, ONLY_EVALUATES: True}
        self._policy = made(policy.observation_space, policy.action_space, config)
        self.numpy_dist, self.num_outputs = self._policy.numpy_dist, int(self._policy.model.num_outputs)
        searched, weights = self._policy.model.trainable_variables(as_dict=True), self._policy.get_weights()
        self.arrays: Arrays = {name: array for name, array in weights.items() if name in searched}
        self._others = {name: array for name, array in weights.items() if name not in searched}
        self._aliases = _other_names(self._policy.model, searched)
        self._held: Mapping[str, NDArray[Any]] = self.arrays

    def actor(self, arrays: Mapping[str, NDArray[Any]]) -> Any:
        """Returns what has `forward(obs [B, ...]) -> outputs [B, K]` with other weights."""
        return _WithWeights(self, arrays)

    def forward(self, obs: NDArray[Any], arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Returns outputs `[B, K]` with these weights, which stay in the model until others are asked for."""
        self._hold(arrays)
        outputs: NDArray[np.float32] = self._policy.forward(obs)[0]
        return outputs

    def model(self, arrays: Mapping[str, NDArray[Any]]) -> Any:
        """Returns the model with these weights, which stay in it until the next action."""
        self._hold(arrays)
        return self._policy.model

    def _hold(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        if self._held is not arrays:
            shared = {name: arrays[first] for name, first in self._aliases.items()}
            self._policy.set_weights({**self._others, **shared, **arrays})
            self._held = arrays


def _other_names(model: Any, variables: Mapping[str, Any]) -> dict[str, str]:
    """Returns the further names that a model has for variables, of layers that it uses twice, and their first ones."""
    in_tf = hasattr(model, "named_variables")
    whole = model.named_variables() if in_tf else dict(model.named_parameters(remove_duplicate=False))
    first = {id(variable): name for name, variable in variables.items()}
    return {name: first[id(each)] for name, each in whole.items() if id(each) in first and name not in variables}


class _WithWeights:
    """A network of a framework, with weights of its own."""

    def __init__(self, network: FrameworkNetwork, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._network, self._arrays = network, arrays

    def forward(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        """Returns outputs `[B, K]` of observations `[B, ...]`."""
        return self._network.forward(obs, self._arrays)
