"""Networks and action spaces of actor-critics that learn from replay: what SAC, DDPG and TD3 have in common."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from rlframe.models.action_mask import ActionMask
from rlframe.models.catalog import has_action_mask
from rlframe.models.spec import ENCODER_WIDTH, BatchNorm, CustomNetwork, Dense, Initial, Network, dense_layers
from rlframe.utils.errors import ConfigError, UnsupportedSpaceException

#: RLlib's initial weights: rows of norm 1, of outputs 0.01.
HIDDEN, HEAD = Initial("normc", 1.0), Initial("normc", 0.01)


def is_discrete(space: Any) -> bool:
    """Returns whether actions are one choice of several."""
    return isinstance(space, gym.spaces.Discrete)


def action_size(owner: str, space: Any, *, discrete: bool = True) -> int:
    """Returns the number of choices of a Discrete action space, or of numbers of a Box.

    Args:
        owner: The algorithm's name, for the message.
        space: The action space.
        discrete: Whether the algorithm can choose.

    Raises:
        UnsupportedSpaceException: If the algorithm cannot act in the space.
    """
    if discrete and is_discrete(space):
        return int(space.n)
    also = "Discrete, or " if discrete else ""
    if not isinstance(space, gym.spaces.Box) or not np.issubdtype(space.dtype, np.floating) or len(space.shape) != 1:
        instead = "use SAC or DQN for choices" if is_discrete(space) else "use PPO, which acts in any space"
        raise UnsupportedSpaceException(
            f"{owner} got the action space {space}; wanted {also}a Box of floats that is a vector with finite bounds; "
            f"{instead}, or put the actions into such a vector in an environment wrapper"
        )
    if not space.is_bounded():
        raise UnsupportedSpaceException(
            f"{owner}'s actions lie within bounds; got the action space {space}, which is open; wanted finite low and "
            "high: give the Box bounds in an environment wrapper, or use PPO"
        )
    return math.prod(space.shape)


def check_normalized(owner: str, space: Any, config: Mapping[str, Any]) -> None:
    """Raises a ConfigError where actions are neither normalised nor in [−1, 1] already."""
    if config.get("normalize_actions", True) or (np.all(space.low == -1.0) and np.all(space.high == 1.0)):
        return
    raise ConfigError(
        f"normalize_actions: got False with the action space {space}; wanted True: {owner}'s policy acts in [-1, 1], "
        "from where actions are mapped onto the space"
    )


def refuse_action_mask(owner: str, policy: Any, num_actions: int) -> None:
    """Raises a ConfigError where observations have an action mask that no network of the policy's would read as such.

    Args:
        owner: The algorithm's name, for the message.
        policy: A policy of which `observation_space` and `config` are set.
        num_actions: Number of choices.
    """
    custom = policy.config["model"].get("custom_model")
    reads = custom and not (isinstance(custom, type) and issubclass(custom, ActionMask))  # else before other outputs
    if not reads and has_action_mask(policy.observation_space, num_actions):
        raise ConfigError(
            f"{owner} got observations with an action_mask, which its network would take for numbers like others; use "
            "PPO, or DQN with model.custom_model=ActionMaskModel, hiddens=[] and dueling=False"
        )


def settle_action_space(owner: str, policy: Any) -> None:
    """Settles by the action space whether a policy chooses, or draws squashed Gaussian numbers; checks the spaces.

    Args:
        owner: The algorithm's name, for messages.
        policy: Gets `discrete`, `action_size` (the number of choices, or of numbers) and, for numbers, `dist_type`.

    Raises:
        UnsupportedSpaceException: If the algorithm cannot act in the space.
        ConfigError: If observations have an action mask, or actions are not normalised.
    """
    policy.discrete = is_discrete(policy.action_space)
    policy.action_size = action_size(owner, policy.action_space)
    if policy.discrete:
        refuse_action_mask(owner, policy, policy.action_size)
    else:
        check_normalized(owner, policy.action_space, policy.config)
        policy.dist_type = "squashed_gaussian"


def encoder_config(policy: Any, section: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the `model` section of what observations pass through first; None for vectors without a custom model.

    Args:
        policy: A policy of which `observation_space` and `config` are set.
        section: Options whose convolutions are used where observations are images.
    """
    model = policy.config["model"]
    if model.get("custom_model"):
        return dict(model)
    if len(policy.observation_space.shape or ()) == 1:
        return None
    kept = ("conv_filters", "conv_activation", "post_fcnet_hiddens", "post_fcnet_activation")
    given = {key: section[key] for key in kept if section.get(key) is not None}
    return {**model, "vf_share_layers": True, "use_lstm": False, "use_attention": False, **given}


def remembering_encoder_config(policy: Any, section: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns what `encoder_config` does; with `use_lstm` or `use_attention` in `model` all of that section."""
    model = policy.config["model"]
    if model.get("use_lstm") or model.get("use_attention"):
        return {**model, "vf_share_layers": True}
    return encoder_config(policy, section)


def obs_width(policy: Any) -> int:
    """Returns how many numbers networks see of an observation."""
    return ENCODER_WIDTH if policy.encoder() else math.prod(policy.observation_space.shape)


def network_of(
    policy: Any,
    section: Mapping[str, Any],
    actions: Mapping[str, int],
    outputs: int,
    *,
    batch_norm: bool = False,
    layer_norm: bool = False,
    initial: str = "normc",
) -> Network | CustomNetwork:
    """Returns the network that a section such as `Q_model` describes.

    Args:
        policy: Whose observations it sees.
        section: Keys `fcnet_hiddens`, `fcnet_activation`, `post_fcnet_hiddens`, `post_fcnet_activation`,
            `custom_model` and `custom_model_config`.
        actions: Names and widths of further inputs.
        outputs: Width of the output.
        batch_norm: Whether inputs and hidden layers pass batch renormalisation.
        layer_norm: Whether hidden layers are normalised, row by row.
        initial: How weights begin, a kind of `Initial`; of "normc" outputs have a norm of 0.01.
    """
    inner, head = (HIDDEN, HEAD) if initial == "normc" else (Initial(initial), Initial(initial))
    inputs = {"obs": obs_width(policy), **actions}
    if section.get("custom_model"):
        whole = None if actions or policy.encoder() else policy.observation_space
        return CustomNetwork(inputs, outputs, section, obs_space=whole)
    norms = {"batch_norm": batch_norm, "layer_norm": layer_norm}
    activation = section["fcnet_activation"] or "linear"
    hidden = dense_layers(section["fcnet_hiddens"] or (), activation, initial=inner, **norms)
    if section.get("post_fcnet_hiddens") and not policy.encoder():
        post = dense_layers(section["post_fcnet_hiddens"], section["post_fcnet_activation"] or "linear", initial=inner)
        hidden += tuple(Dense(f"post_{layer.name}", layer.activation, layer.units, inner) for layer in post)  # type: ignore[union-attr]  # all dense
    normed = (BatchNorm("input_norm", units=sum(inputs.values())),) if batch_norm else ()
    return Network(inputs, (*normed, *hidden, Dense("output", "linear", outputs, head)))
