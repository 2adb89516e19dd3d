"""A program's own model in place of an actor-critic's networks: what SAC's and DDPG's have in common.

Built-in networks are data (`LearningPolicy.networks`). A program that wants more derives from the class that has
RLlib's name, such as `SACTorchModel` or `DDPGTFModel`, overrides methods, and names its class in `model.custom_model`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tree

from rlframe.data.columns import OBS
from rlframe.models.catalog import ModelCatalog
from rlframe.models.modelv2 import IS_TRAINING
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor
from rlframe.utils.errors import ConfigError


def side_by_side(features: Any) -> Tensor:
    """Returns nested features as one tensor `[B, D]`, in the order of the flat observations; a tensor as it is."""
    leaves = tree.flatten(features)
    return leaves[0] if leaves[0] is features else ops.concat([ops.flat_rows(ops.to_float(x)) for x in leaves], 1)


def weights_in(network: Any) -> list[Any]:
    """Returns the weights of a model, a module of PyTorch, or a Keras model."""
    if callable(getattr(network, "variables", None)):
        return list(network.variables())
    parameters = getattr(network, "parameters", None)
    return list(network.trainable_variables) if parameters is None else list(parameters())


def own_weights(model: Any, networks: tuple[str, ...]) -> dict[str, Any]:
    """Returns the weights that the optimiser of some networks steps, in a model of the program's own, by name.

    The critics' steps all that is neither the actor's nor α: layers in front of both learn as an encoder would.

    Args:
        model: The model.
        networks: "actor", "log_alpha", or the names of critics and of what makes their features.
    """
    alpha = [model.log_alpha] if hasattr(model, "log_alpha") else []
    of_actor, of_alpha = _ids(model.policy_variables()) - _ids(model.q_variables()), _ids(alpha)
    named: dict[str, Any] = model.trainable_variables(as_dict=True)
    if networks in (("log_alpha",), ("actor",)):
        wanted = of_actor if networks == ("actor",) else of_alpha
        return {name: weight for name, weight in named.items() if id(weight) in wanted}
    return {name: weight for name, weight in named.items() if id(weight) not in of_actor | of_alpha}


def _ids(weights: Sequence[Any]) -> set[int]:
    # Keras' variables stand for TensorFlow's.
    return {id(weight.value if hasattr(weight, "path") else weight) for weight in weights}


def held(features: Any) -> Any:
    """Returns features, nested as a program's own model gives them, as constants."""
    return tree.map_structure(ops.stop_gradient, features)


def of_constants(function: Callable[[Any], Any], features: Any) -> Any:
    """Returns what a function gives for features, which may be nested, as constants; see `ops.without_gradient`."""
    return ops.without_gradient(lambda _: function(features), tree.flatten(features)[0])


class OwnNetworks:
    """A model of the program's own, with the names under which losses ask for networks."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def encode(self, obs: Tensor, training: bool = False) -> Any:
        """Returns what the model's `forward` makes of observations `[B, ...]`, nested."""
        return self._model({OBS: obs, IS_TRAINING: training}, [], None)[0]

    def actor(self, features: Any) -> Tensor:
        """Returns distribution inputs."""
        made: Tensor = self._model.get_policy_output(features)
        return made

    def q(self, features: Any, actions: Tensor | None = None, **kwargs: Any) -> Tensor:
        """Returns the critic's values."""
        del kwargs
        made: Tensor = self._model.get_q_values(features, actions)
        return made

    def twin_q(self, features: Any, actions: Tensor | None = None, **kwargs: Any) -> Tensor:
        """Returns the second critic's values."""
        del kwargs
        made: Tensor = self._model.get_twin_q_values(features, actions)
        return made

    @property
    def log_alpha(self) -> Tensor:
        """Log α, a scalar."""
        return ops.reshape(self._model.log_alpha, ())


def is_own_model(policy: Any, kind: type[Any], owner: str, wanted: Mapping[str, tuple[Any, ...]]) -> bool:
    """Returns whether `model.custom_model` is a whole model, and not one that makes features for built-in networks.

    Args:
        policy: A policy of which the config is set; `takes_own_model` says whether it learns with one.
        kind: What such a model derives from.
        owner: The algorithm's name, for messages.
        wanted: By key of the config, the values that leave networks to the model.

    Raises:
        ConfigError: If the config asks for what only built-in networks have.
    """
    custom = policy.config["model"].get("custom_model")
    given = ModelCatalog.find_model(custom) if custom else None
    if not (isinstance(given, type) and issubclass(given, kind)):
        return False
    if not policy.takes_own_model:
        raise ConfigError(
            f"model.custom_model: got {given.__name__}, a whole model of {owner}'s, which {type(policy).__name__} does "
            "not learn with; wanted networks of your own in Q_model.custom_model and policy_model.custom_model, or a "
            "model that makes features of observations"
        )
    for key, values in wanted.items():
        if policy.config.get(key) not in values:
            raise ConfigError(
                f"{key}: got {policy.config[key]!r} with the custom model {given.__name__}, whose networks are its "
                f"own; wanted one of {values}"
            )
    return True


def distribution_of_features(
    policy: Any, model: Any, *, input_dict: Any, state_batches: Any = None, seq_lens: Any = None, **kwargs: Any
) -> tuple[Tensor, Any, list[Any]]:
    """Returns the actor's outputs, the class of their distribution, and new states, of a model of the program's own."""
    del kwargs
    features, state = model(input_dict, state_batches or [], seq_lens)
    return model.get_policy_output(features), policy.dist_class, state
