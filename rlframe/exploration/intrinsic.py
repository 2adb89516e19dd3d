"""Rewards of one's own making: what a trajectory is worth beyond what the environment says."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from rlframe.data.columns import NEXT_OBS, REWARDS
from rlframe.exploration.exploration import Array, Exploration, State
from rlframe.exploration.make import make_exploration
from rlframe.models.catalog import ModelCatalog, features_class
from rlframe.models.spec import Dense, Network
from rlframe.utils.errors import ConfigError, UnsupportedSpaceException

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rlframe.exploration.exploration import ExplorationArgs

_FRAMEWORKS = {"torch": "torch", "tf": "tf", "tf2": "tf", "tfe": "tf"}


@dataclass(frozen=True)
class Features:
    """A network that makes features of observations.

    Attributes:
        size: How many.
        config: Its `model` section.
    """

    size: int
    config: Mapping[str, Any]


def features_of(part: Features, obs_space: Any, action_space: Any, framework: str) -> Any:
    """Returns the model from observations to features, without a value head."""
    config = dict(part.config)
    return ModelCatalog.get_model_v2(
        obs_space,
        action_space,
        part.size,
        config,
        framework,
        default_model=features_class(obs_space, config, framework),
    )


def dense_network(in_size: int, hidden: tuple[Sequence[int], str], out_size: int) -> Network:
    """Returns dense layers "0", "1", …; the last one is linear.

    Args:
        in_size: Width of all inputs together.
        hidden: Widths of the hidden layers, and their activation.
        out_size: Width of the output.
    """
    widths, activation = hidden
    layers = [Dense(str(index), activation, int(width)) for index, width in enumerate(widths)]
    return Network({"inputs": in_size}, (*layers, Dense(str(len(layers)), "linear", out_size)))


class IntrinsicReward(Exploration):
    """Adds to the rewards of every trajectory, before the policy's own postprocessing; actions are chosen as before.

    Each worker has networks of its own, which learn from what it samples, and which checkpoints contain. Workers that
    evaluate leave rewards as they are. What episodes report (`episode_reward_mean`) is the environment's.

    A subclass gives the rewards (`intrinsic_rewards`) and says its networks (`make_networks`); `networks.learn` does a
    step on a loss that is written once for both frameworks.

    Args:
        action_space: The environment's action space.
        sub_exploration: Config of the exploration that chooses actions, such as `{"type": "StochasticSampling"}`.
        **base: See `Exploration`.

    Raises:
        ConfigError: If there is no `sub_exploration`.
    """

    reads: tuple[str, ...] = (NEXT_OBS,)
    #: Names of the networks that learn.
    learning: tuple[str, ...] = ()
    #: Learning rate of Adam.
    lr = 0.0

    def __init__(
        self,
        action_space: Any,
        *,
        sub_exploration: Mapping[str, Any] | None = None,
        **base: Unpack[ExplorationArgs],
    ) -> None:
        self._sub: Exploration | None = None
        super().__init__(action_space, **base)
        name = type(self).__name__
        if sub_exploration is None:
            raise ConfigError(
                f"exploration_config.sub_exploration: got None, but {name} chooses no actions itself; wanted what the "
                "algorithm would explore with, e.g. {'type': 'StochasticSampling'} for PPO, {'type': 'EpsilonGreedy'} "
                "for DQN"
            )
        base["rng"] = self.rng
        self._sub = make_exploration(sub_exploration, action_space, **base)
        self.has_episode_hooks = self._sub.has_episode_hooks
        self._networks: Any = None

    # --- what a subclass says ---------------------------------------------------------------------------------

    def intrinsic_rewards(self, batch: Any) -> Array:
        """Returns what each row of a trajectory is worth by itself, float32 `[B]`; networks may learn from it."""
        raise NotImplementedError

    def make_networks(self) -> Mapping[str, Network | Features]:
        """Returns the networks by name."""
        raise NotImplementedError

    # --- rewards ----------------------------------------------------------------------------------------------

    def postprocess_trajectory(self, policy: Any, sample_batch: Any, tf_sess: Any = None) -> Any:
        """Returns the trajectory with what it is worth by itself added to its rewards; the batch given stays."""
        self.policy = policy
        batch = self.sub_exploration.postprocess_trajectory(policy, sample_batch, tf_sess) or sample_batch
        if self.policy_config.get("in_evaluation") or len(batch[REWARDS]) == 0:
            return batch
        made = batch.copy(shallow=True)
        made[REWARDS] = np.asarray(batch[REWARDS], np.float32) + self.intrinsic_rewards(batch)
        return made

    @property
    def networks(self) -> Any:
        """The networks; they are made when they are first asked for.

        Raises:
            ConfigError: If the policy's framework has none, or observations are not arrays.
        """
        if self._networks is None:
            if self.policy_config.get("_disable_preprocessor_api"):
                raise ConfigError(
                    f"exploration_config: {type(self).__name__} takes preprocessed observations; got "
                    "_disable_preprocessor_api=True, wanted False"
                )
            library = importlib.import_module(f"rlframe.exploration.networks_{self._framework()}")
            seed = int(self.rng.integers(2**31))
            self._networks = library.Networks(
                self.policy.observation_space, self.action_space, self.make_networks(), self.learning, self.lr, seed
            )
        return self._networks

    def _framework(self) -> str:
        """Returns "torch" or "tf", also where a worker acts in NumPy."""
        named = self.framework if self.framework in _FRAMEWORKS else self.policy_config.get("framework", "torch")
        known = _FRAMEWORKS.get(str(named))
        if known is None:
            raise ConfigError(f"framework: got {named!r}; {type(self).__name__} has networks for 'torch' and 'tf'")
        return known

    def network_config(self, given: Mapping[str, Any] | None) -> dict[str, Any]:
        """Returns the `model` section for a network: the given one, else the policy's, without memory or own model."""
        own = {"use_lstm": False, "use_attention": False, "custom_model": None}
        base = {**self.policy_config.get("model", {}), **own} if given is None else dict(given)
        return {**base, "free_log_std": False, "vf_share_layers": True}

    # --- everything else is the sub-exploration's -------------------------------------------------------------

    @property
    def sub_exploration(self) -> Exploration:
        """The exploration that chooses actions."""
        assert self._sub is not None
        return self._sub

    @property
    def policy(self) -> Any:
        """The policy acted for."""
        return self._policy

    @policy.setter
    def policy(self, policy: Any) -> None:
        self._policy = policy
        if self._sub is not None:
            self._sub.policy = policy

    def before_compute_actions(
        self, *, timestep: int | None = None, explore: bool | None = None, tf_sess: Any = None, **kwargs: Any
    ) -> None:
        """Tells `sub_exploration`."""
        self.sub_exploration.before_compute_actions(timestep=timestep, explore=explore, tf_sess=tf_sess, **kwargs)

    def action_probabilities(self, action_distribution: Any, timestep: int | None = None) -> Array | None:
        """Returns those of `sub_exploration`."""
        return self.sub_exploration.action_probabilities(action_distribution, timestep)

    @property
    def takes_tensors(self) -> bool:
        """What `sub_exploration` says."""
        return self.sub_exploration.takes_tensors

    def get_exploration_action(
        self, *, action_distribution: Any, timestep: int | None, explore: bool = True
    ) -> tuple[Any, Array]:
        """Returns the actions and log-likelihoods that `sub_exploration` chooses."""
        self.advance(timestep)
        return self.sub_exploration.get_exploration_action(
            action_distribution=action_distribution, timestep=timestep, explore=explore
        )

    def restore_weights(self) -> None:
        """Tells `sub_exploration`."""
        self.sub_exploration.restore_weights()

    def on_episode_start(
        self, policy: Any, *, environment: Any = None, episode: Any = None, tf_sess: Any = None
    ) -> None:
        """Tells `sub_exploration`."""
        self.sub_exploration.on_episode_start(policy, environment=environment, episode=episode, tf_sess=tf_sess)

    def on_episode_end(self, policy: Any, *, environment: Any = None, episode: Any = None, tf_sess: Any = None) -> None:
        """Tells `sub_exploration`."""
        self.sub_exploration.on_episode_end(policy, environment=environment, episode=episode, tf_sess=tf_sess)

    # --- state ------------------------------------------------------------------------------------------------

    def get_state(self, sess: Any = None) -> State:
        """Returns the state of `Exploration` and of `sub_exploration`, and the networks', None before there are any."""
        networks = None if self._networks is None else self._networks.get_state()
        return {
            **super().get_state(sess),
            "networks": networks,
            "sub_exploration": self.sub_exploration.get_state(sess),
        }

    def set_state(self, state: State, sess: Any = None) -> None:
        """Takes back what `get_state` returned."""
        if state.get("networks") is not None:
            self.networks.set_state(state["networks"])
        super().set_state(state, sess)
        if "sub_exploration" in state:
            self.sub_exploration.set_state(state["sub_exploration"], sess)


def one_hot_choices(actions: Any, action_space: Any) -> Array:
    """Returns actions of a Discrete or MultiDiscrete space, counted from 0, as float32 `[B, sum of choices]`."""
    counts = choices(action_space)
    columns = np.asarray(actions).reshape(-1, len(counts))
    return np.concatenate([np.eye(n, dtype=np.float32)[columns[:, i]] for i, n in enumerate(counts)], axis=1)


def choices(action_space: Any) -> list[int]:
    """Returns the number of choices of each component.

    Raises:
        UnsupportedSpaceException: If the space is neither Discrete nor MultiDiscrete.
    """
    if isinstance(action_space, spaces.Discrete):
        return [int(action_space.n)]
    if isinstance(action_space, spaces.MultiDiscrete):
        return [int(n) for n in np.asarray(action_space.nvec).reshape(-1)]
    raise UnsupportedSpaceException(
        f"Curiosity got the action space {action_space}; wanted a Discrete or MultiDiscrete one, whose actions its "
        "inverse model can tell. RND and RE3 do without actions."
    )
