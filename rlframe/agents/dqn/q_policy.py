"""What Q-learning policies are made of: Q-networks and their heads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from rlframe.data.columns import OBS
from rlframe.models.catalog import ModelCatalog
from rlframe.tensor.ops import Tensor
from rlframe.utils.errors import ConfigError, UnsupportedSpaceException
from rlframe.utils.spaces.old_gym import convert_space

Q_SCOPE = "q_func"
Q_TARGET_SCOPE = "target_q_func"


class NetworkName:
    """Another name of a policy's network: what is set under one is under both."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, policy: Any, owner: type) -> Any:
        """Returns the network."""
        return self if policy is None else getattr(policy, self._name)

    def __set__(self, policy: Any, network: Any) -> None:
        """Sets the network."""
        setattr(policy, self._name, network)


class WeightsOf:
    """The weights of a policy's network, unless the policy has others under that name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, policy: Any, owner: type) -> Any:
        """Returns the weights.

        Raises:
            AttributeError: If the network is not there yet.
        """
        return self if policy is None else getattr(policy, self._name).variables()


class QOutput(NamedTuple):
    """Q-values [B, A] and, for distributional heads, logits [B, A, Z]."""

    q: Tensor
    logits: Tensor | None


def q_output(model: Any, obs: Tensor | Mapping[str, Any], *, training: bool) -> QOutput:
    """Returns a model's Q-values: its heads', or, where it has none, its outputs.

    Args:
        model: The model.
        obs: Observations `[B, ...]`; for a model with memory the columns of sequences, see `model_inputs`.
        training: What the model is told.

    Raises:
        ConfigError: If the model reads a column of its view requirements that single steps do not have.
    """
    inputs = obs if isinstance(obs, Mapping) else {OBS: obs}
    try:
        outputs = model({**inputs, "is_training": training})[0]
    except KeyError as error:
        wanted = error.args[0] if error.args else None
        if wanted in inputs or wanted not in model.view_requirements:
            raise
        raise ConfigError(
            f"model: Q-learning from single steps gives a network observations alone; got {type(model).__name__}, "
            f"which reads {wanted!r} of its view_requirements. An environment wrapper can put it into the observations "
            "(such as gymnasium.wrappers.FrameStackObservation); R2D2 gives it to models with memory"
        ) from error
    result: QOutput = model.q_values(outputs) if hasattr(model, "q_values") else QOutput(outputs, None)
    return result


def check_discrete(owner: str, action_space: gym.Space[Any]) -> None:
    """Raises an UnsupportedSpaceException unless actions are Discrete."""
    if not isinstance(convert_space(action_space), gym.spaces.Discrete):
        raise UnsupportedSpaceException(
            f"{owner} needs a Discrete action space, got {action_space}; use an actor-critic "
            "algorithm, or discretise the actions in an environment wrapper"
        )


def make_q_model(policy: Any, interface: Any, heads: Mapping[str, Any], name: str = Q_SCOPE) -> tuple[Any, int]:
    """Returns a Q-network for a policy's spaces and config, and the width of its trunk's features.

    Args:
        policy: A policy of which `observation_space`, `action_space`, `config` and `framework` are set.
        interface: What puts heads on a model.
        heads: Keyword arguments of the interface, see `q_heads`.
        name: Name of the model.
    """
    model_config = dict(policy.config["model"])
    has_heads = bool(heads["q_hiddens"]) or heads["dueling"] or heads.get("num_atoms", 1) > 1 or heads.get("use_noisy")
    num_outputs = int(policy.action_space.n)
    if has_heads:
        num_outputs = int(np.ravel(model_config["post_fcnet_hiddens"] or model_config["fcnet_hiddens"] or 256)[-1])
        model_config["no_final_linear"] = True
    model = ModelCatalog.get_model_v2(
        obs_space=policy.observation_space,
        action_space=policy.action_space,
        num_outputs=num_outputs,
        model_config=model_config,
        framework=policy.framework,
        name=name,
        model_interface=interface,
        **heads,
    )
    return model, getattr(model, "trunk_width", num_outputs) if has_heads else num_outputs


def q_heads(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what DQN's heads are built with."""
    exploration = (config.get("exploration_config") or {}).get("type")
    return {
        "q_hiddens": tuple(config["hiddens"] or ()),
        "dueling": config["dueling"],
        "num_atoms": config["num_atoms"],
        "use_noisy": config["noisy"],
        "v_min": config["v_min"],
        "v_max": config["v_max"],
        "sigma0": config["sigma0"],
        "add_layer_norm": exploration == "ParameterNoise",
    }
