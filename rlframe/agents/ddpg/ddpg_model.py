"""DDPG's networks as one model of the program's own: RLlib's `DDPGTorchModel` and `DDPGTFModel`, for both frameworks.

Built-in networks are data (`DDPGPolicy.networks`). A program that wants more than the config says derives from
`ddpg_torch_model.DDPGTorchModel` or `ddpg_tf_model.DDPGTFModel`, overrides methods, and names its class in
`model.custom_model`.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np
from gymnasium import spaces

from rlframe.agents.families.own_model import OwnNetworks, is_own_model, side_by_side, weights_in
from rlframe.data.columns import OBS
from rlframe.models.catalog import ModelCatalog
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor
from rlframe.utils.errors import ConfigError


class DDPGModelMethods:
    """A deterministic actor, and one critic or two, in one model; the frameworks' classes add bases and networks.

    Data flow: `forward` makes features of observations (the observations themselves), `get_policy_output` actions of
    features, `get_q_values` and `get_twin_q_values` values of features and actions.

    Attributes:
        policy_model: From features `[B, F]` to actions `[B, A]`.
        q_model, twin_q_model: Critics; the second is None without `twin_q`.
        action_space: Where the policy acts: [−1, 1] with `normalize_actions`.
    """

    action_space: Any
    policy_model: Any
    q_model: Any
    twin_q_model: Any

    def bounds(self) -> tuple[Any, Any] | None:
        """Returns what actions are squashed between, float32 `[A]` each; None where the space has no bounds."""
        low, high = (
            np.asarray(bound, np.float32).reshape(-1) for bound in (self.action_space.low, self.action_space.high)
        )
        return (low, high) if np.isfinite(low).all() and np.isfinite(high).all() else None

    # --- hooks ------------------------------------------------------------------------------------------------

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Any, list[Any]]:
        """Returns the features that actor and critics see: the observations, flat."""
        del seq_lens
        features = side_by_side(input_dict[OBS])
        return ops.to_float(features if len(features.shape) == 2 else ops.flat_rows(features)), state

    forward.gives_way = True  # type: ignore[attr-defined]  # to that of a model behind it, which makes the features

    def get_policy_output(self, model_out: Tensor) -> Tensor:
        """Returns the actor's actions `[B, A]`, of what `forward` gave."""
        actions: Tensor = self.policy_model(model_out)
        return actions

    def get_q_values(self, model_out: Tensor, actions: Tensor) -> Tensor:
        """Returns the critic's values `[B, 1]` of actions `[B, A]`."""
        return self._values(self.q_model, model_out, actions)

    def get_twin_q_values(self, model_out: Tensor, actions: Tensor) -> Tensor:
        """Returns what `get_q_values` does, of the second critic."""
        return self._values(self.twin_q_model, model_out, actions)

    def _values(self, network: Any, model_out: Tensor, actions: Tensor) -> Tensor:
        raise NotImplementedError

    # --- weights ----------------------------------------------------------------------------------------------

    def policy_variables(self, as_dict: bool = False) -> Any:
        """Returns what the actor's optimiser steps, as a list or by name."""
        return self._named(self.policy_model) if as_dict else weights_in(self.policy_model)

    def q_variables(self, as_dict: bool = False) -> Any:
        """Returns what the critics' optimiser steps, as a list or by name."""
        critics = [network for network in (self.q_model, self.twin_q_model) if network is not None]
        if as_dict:
            return {name: weight for network in critics for name, weight in self._named(network).items()}
        return [weight for network in critics for weight in weights_in(network)]

    def _named(self, network: Any) -> dict[str, Any]:
        wanted: Any = self
        mine = {id(getattr(weight, "value", weight)) for weight in weights_in(network)}
        named = wanted.trainable_variables(as_dict=True)
        return {name: weight for name, weight in named.items() if id(weight) in mine}


class _OwnDDPGNetworks(OwnNetworks):
    """A model of the program's own, as DDPG's loss reads it."""

    def kernels(self, name: str) -> list[Tensor]:
        """Returns the weights of a network but its biases."""
        network = getattr(self._model, {"actor": "policy_model", "q": "q_model", "twin_q": "twin_q_model"}[name])
        return [weight for weight in weights_in(network) if len(weight.shape) > 1]


def networks_in(model: Any) -> Any:
    """Returns a policy's model, or target model, as the loss reads it."""
    return _OwnDDPGNetworks(model) if isinstance(model, DDPGModelMethods) else model


def is_own(policy: Any) -> bool:
    """Returns whether `model.custom_model` is a whole model of DDPG's; see `is_own_model`."""
    return is_own_model(policy, DDPGModelMethods, "DDPG", {"use_state_preprocessor": (False,)})


def build_ddpg_models(policy: Any, obs_space: Any, action_space: Any, config: Any) -> Any:
    """Returns DDPG's networks as one model: `model.custom_model` where that derives from the class of RLlib's name.

    Args:
        policy: Its `target_model` becomes a second one.
        obs_space: Preprocessed observation space.
        action_space: Action space of the environment.
        config: DDPG's config.
    """
    home = importlib.import_module(f"rlframe.agents.ddpg.ddpg_{policy.framework}_model")
    normalized = (-1.0, 1.0) if config["normalize_actions"] else (action_space.low, action_space.high)
    bounds = getattr(policy, "bounds", normalized)  # of policies that are made of functions alone
    low, high = (np.broadcast_to(np.asarray(bound, np.float32), action_space.shape) for bound in bounds)
    options = {
        key: config[key]
        for key in ("actor_hiddens", "actor_hidden_activation", "critic_hiddens", "critic_hidden_activation", "twin_q")
    }
    noisy = (config["exploration_config"] or {}).get("type") == "ParameterNoise"

    def make(name: str) -> Any:
        return ModelCatalog.get_model_v2(
            obs_space, spaces.Box(low, high, dtype=np.float32), math.prod(obs_space.shape), dict(config["model"]),
            policy.framework, name, default_model=home.DDPGModel, add_layer_norm=noisy, **options,
        )  # fmt: skip

    model = make("ddpg_model")
    if not isinstance(model, DDPGModelMethods):
        raise ConfigError(
            f"model.custom_model: got {type(model).__name__}, wanted a subclass of {home.DDPGModel.__name__}: "
            "build_ddpg_models() makes DDPG's networks of one model"
        )
    policy.target_model = make("target_ddpg_model")
    return model


def build_ddpg_models_and_action_dist(
    policy: Any, obs_space: Any, action_space: Any, config: Any
) -> tuple[Any, type[Any]]:
    """Returns what `build_ddpg_models` does, and the class of the actions' distribution."""
    model = build_ddpg_models(policy, obs_space, action_space, config)
    section = dict(config["model"])
    kind = section.get("custom_action_dist") or "deterministic"
    return model, ModelCatalog.get_action_dist(action_space, section, dist_type=kind, framework=policy.framework)[0]
