"""SAC's networks as one model of the program's own: RLlib's `SACTorchModel` and `SACTFModel`, for both frameworks.

Built-in networks are data (`SACPolicy.networks`). A program that wants more than `Q_model` and `policy_model` say
derives from `sac_torch_model.SACTorchModel` or `sac_tf_model.SACTFModel`, overrides methods, and names its class in
`model.custom_model`.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
from gymnasium import spaces

from rlframe.agents.families.actor_critic_networks import action_size, is_discrete
from rlframe.agents.families.own_model import OwnNetworks, is_own_model, side_by_side, weights_in
from rlframe.data.columns import OBS
from rlframe.models.catalog import ModelCatalog, default_network
from rlframe.models.modelv2 import IS_TRAINING
from rlframe.models.preprocessors import get_preprocessor
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor
from rlframe.utils.errors import ConfigError

_ALONE = (
    "wanted the methods of RLlib up to 1.11, which return no states: get_policy_output(model_out), the distribution's "
    "inputs, get_q_values(...) and get_twin_q_values(...), the values; write them without `, _`"
)


def log_of_alpha(initial_alpha: float) -> float:
    """Returns what log α begins with; for 0 the smallest of which losses are finite numbers."""
    return math.log(max(initial_alpha, float(np.finfo(np.float32).tiny)))


class SACModelMethods:
    """An actor, one critic or two, and log α in one model; the frameworks' classes add their bases.

    Data flow: `forward` makes features of observations (the observations themselves), `get_policy_output` the
    distribution inputs of features, `get_q_values` and `get_twin_q_values` values of features and actions.
    """

    obs_space: Any
    action_space: Any
    framework: Any

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Refuses a method of RLlib 1.13's that nothing would call.

        Raises:
            TypeError: If there is one.
        """
        super().__init_subclass__(**kwargs)
        own = cls.get_policy_output is not SACModelMethods.get_policy_output
        if "get_action_model_outputs" in cls.__dict__ and not own:
            raise TypeError(f"{cls.__name__}.get_action_model_outputs would never be called: {_ALONE}")

    def make_networks(
        self,
        policy_model_config: Mapping[str, Any] | None,
        q_model_config: Mapping[str, Any] | None,
        twin_q: bool,
        target_entropy: Any,
    ) -> None:
        """Builds the networks as attributes `action_model`, `q_net` and `twin_q_net` (None without a second critic).

        Args:
            policy_model_config: Keys of a `model` section for the actor; None takes the defaults.
            q_model_config: The same for each critic.
            twin_q: Whether there are two critics.
            target_entropy: In nats; None or "auto" takes −A, or 0.98 log A for A choices.
        """
        self.discrete = is_discrete(self.action_space)
        self.action_dim = size = action_size("SAC", self.action_space)
        policy_options, q_options = _options(policy_model_config), _options(q_model_config)
        outputs, values = (size, size) if self.discrete else (2 * size, 1)
        self.concat_obs_and_actions = False
        self.action_model = self.build_policy_model(self.obs_space, outputs, policy_options, "policy_model")
        make = self.build_q_model
        self.q_net = make(self.obs_space, self.action_space, values, q_options, "q")
        self.twin_q_net = make(self.obs_space, self.action_space, values, q_options, "twin_q") if twin_q else None
        auto = 0.98 * math.log(size) if self.discrete else -float(size)
        self.target_entropy = auto if target_entropy in (None, "auto") else float(target_entropy)

    # --- hooks ------------------------------------------------------------------------------------------------

    def build_policy_model(self, obs_space: Any, num_outputs: int, policy_model_config: Any, name: str) -> Any:
        """Returns the actor's network, a model of the catalog; one of another kind needs its `get_policy_output`.

        Args:
            obs_space: Preprocessed observation space.
            num_outputs: Width of the distribution inputs.
            policy_model_config: A `model` section.
            name: Name of the network.
        """
        config = dict(policy_model_config)
        return ModelCatalog.get_model_v2(obs_space, self.action_space, num_outputs, config, self.framework, name)

    def build_q_model(self, obs_space: Any, action_space: Any, num_outputs: int, q_model_config: Any, name: str) -> Any:
        """Returns a critic's network, a model of the catalog; one of another kind needs its `_get_q_value`.

        It sees vectors side by side with the actions, and images or parts of them as a Tuple with the actions.

        Args:
            obs_space: Preprocessed observation space.
            action_space: Action space.
            num_outputs: 1, or the number of choices.
            q_model_config: A `model` section.
            name: Name of the network.
        """
        seen = obs_space
        if not self.discrete and default_network(obs_space) == "fcnet":
            self.concat_obs_and_actions = True
            width = math.prod(obs_space.shape) + self.action_dim
            seen = spaces.Box(-np.inf, np.inf, (width,), np.float32)
        elif not self.discrete:
            both = spaces.Tuple((getattr(obs_space, "original_space", obs_space), action_space))
            seen = get_preprocessor(both)(both).observation_space
        config = dict(q_model_config)
        return ModelCatalog.get_model_v2(seen, action_space, num_outputs, config, self.framework, name)

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Any, list[Any]]:
        """Returns the features that actor and critics see: the observations, nested as in the environment."""
        del seq_lens
        return input_dict[OBS], state

    def get_policy_output(self, model_out: Any) -> Tensor:
        """Returns the actor's distribution inputs `[B, 2A]`, or logits `[B, A]`, of what `forward` gave."""
        outputs: Tensor = self.action_model({OBS: side_by_side(model_out), IS_TRAINING: True}, [], None)[0]
        return outputs

    def get_action_model_outputs(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuses: RLlib 1.13 had it in the place of `get_policy_output`, and its values were pairs with states.

        Args:
            args: Not used.
            kwargs: Not used.

        Raises:
            NotImplementedError: Always; says what to write.
        """
        del args, kwargs
        raise NotImplementedError(f"{type(self).__name__}.get_action_model_outputs is RLlib 1.13's: {_ALONE}")

    def get_q_values(self, model_out: Any, actions: Tensor | None = None) -> Tensor:
        """Returns the critic's values `[B, 1]` of actions `[B, A]`, or `[B, A]` of every choice."""
        return self._get_q_value(model_out, actions, self.q_net)

    def get_twin_q_values(self, model_out: Any, actions: Tensor | None = None) -> Tensor:
        """Returns what `get_q_values` does, of the second critic."""
        return self._get_q_value(model_out, actions, self.twin_q_net)

    def _get_q_value(self, model_out: Any, actions: Tensor | None, net: Any) -> Tensor:
        features = side_by_side(model_out)
        if actions is not None:
            features = ops.concat([features if len(features.shape) == 2 else ops.flat_rows(features), actions], 1)
        values: Tensor = net({OBS: features, IS_TRAINING: True}, [], None)[0]
        return values

    # --- weights ----------------------------------------------------------------------------------------------

    def policy_variables(self) -> list[Any]:
        """Returns what the actor's optimiser steps."""
        return weights_in(self.action_model)

    def q_variables(self) -> list[Any]:
        """Returns what the critics' optimiser steps."""
        return weights_in(self.q_net) + ([] if self.twin_q_net is None else weights_in(self.twin_q_net))


def _options(section: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns a `model` section whose networks have no layers for values of their own."""
    return {**{key: value for key, value in (section or {}).items() if value is not None}, "vf_share_layers": True}


def networks_in(model: Any) -> Any:
    """Returns a policy's model, or target model, as the loss reads it."""
    return OwnNetworks(model) if isinstance(model, SACModelMethods) else model


def is_own(policy: Any) -> bool:
    """Returns whether `model.custom_model` is a whole model of SAC's; see `is_own_model`."""
    wanted = {"n_critics": (None, 0, 1, 2), "n_quantiles": (1,), "critic_batch_norm": (False,)}
    return is_own_model(policy, SACModelMethods, "SAC", wanted)


def build_sac_model(policy: Any, obs_space: Any, action_space: Any, config: Mapping[str, Any]) -> Any:
    """Returns SAC's networks as one model: `model.custom_model` where that derives from the class of RLlib's name.

    Args:
        policy: Its `target_model` becomes a second one.
        obs_space: Preprocessed observation space.
        action_space: Action space.
        config: SAC's config.
    """
    home = importlib.import_module(f"rlframe.agents.sac.sac_{policy.framework}_model")
    options = {
        "policy_model_config": dict(config["policy_model"]),
        "q_model_config": dict(config["Q_model"]),
        "twin_q": bool(config["twin_q"]),
        "initial_alpha": config["initial_alpha"],
        "target_entropy": config["target_entropy"],
    }

    def make(name: str) -> Any:
        return ModelCatalog.get_model_v2(
            obs_space, action_space, None, dict(config["model"]), policy.framework, name,
            default_model=home.SACModel, **options,
        )  # fmt: skip

    model = make("sac_model")
    if not isinstance(model, SACModelMethods):
        raise ConfigError(
            f"model.custom_model: got {type(model).__name__}, wanted a subclass of {home.SACModel.__name__}: "
            "build_sac_model() makes SAC's networks of one model"
        )
    policy.target_model = make("target_sac_model")
    return model


def build_sac_model_and_action_dist(
    policy: Any, obs_space: Any, action_space: Any, config: Mapping[str, Any]
) -> tuple[Any, Any]:
    """Returns what `build_sac_model` does, and the class of the actions' distribution."""
    model = build_sac_model(policy, obs_space, action_space, config)
    return model, sac_action_dist(config["model"], action_space, policy.framework)


def sac_action_dist(model_config: Mapping[str, Any], action_space: Any, framework: str) -> Any:
    """Returns the class of the actions' distribution: squashed Gaussians, or choices."""
    section = dict(model_config)
    kind = section.get("custom_action_dist") or (None if is_discrete(action_space) else "squashed_gaussian")
    return ModelCatalog.get_action_dist(action_space, section, dist_type=kind, framework=framework)[0]
