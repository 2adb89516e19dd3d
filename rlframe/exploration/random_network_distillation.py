"""Random network distillation: states whose random features cannot yet be told are worth a reward."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.data.columns import NEXT_OBS
from rlframe.data.returns import discount_cumsum
from rlframe.exploration.exploration import Array, State
from rlframe.exploration.intrinsic import Features, IntrinsicReward
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor
from rlframe.utils.filter import RunningStat

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rlframe.exploration.exploration import ExplorationArgs

_CLIP = 5.0
_SMALL = 1e-8


class RND(IntrinsicReward):
    """A reward for states whose features of a fixed random network a second network does not yet foretell.

        r^i_t = η · mean_d ( f̂(x_{t+1}) − f(x_{t+1}) )² / std(R^i),   x = clip((s − mean(s)) / std(s), ±5)

    Means and deviations are those of all that was sampled so far; R^i are the discounted sums of unscaled rewards to
    come in their trajectory. The second network takes one Adam step on each trajectory, after its rewards were
    computed. Unlike in the paper, rewards are added to the environment's, so one value serves both, and they end with
    the episode.

    Args:
        action_space: The environment's action space.
        embed_dim: Size of the features.
        net_config: The `model` section of both networks; None takes the policy's.
        eta: Factor η on the rewards.
        lr: Learning rate.
        sub_exploration: Config of the exploration that chooses actions.
        **base: See `Exploration`.

    Raises:
        ConfigError: If there is no `sub_exploration`.

    Source: Burda et al. 2018, "Exploration by Random Network Distillation", sections 2.2 and 2.4.
    """

    learning = ("prediction",)

    def __init__(
        self,
        action_space: Any,
        *,
        embed_dim: int = 128,
        net_config: Mapping[str, Any] | None = None,
        eta: float = 1.0,
        lr: float = 1e-4,
        sub_exploration: Mapping[str, Any] | None = None,
        **base: Unpack[ExplorationArgs],
    ) -> None:
        super().__init__(action_space, sub_exploration=sub_exploration, **base)
        self.embed_dim, self.net_config, self.eta, self.lr = embed_dim, net_config, eta, lr
        self._obs: RunningStat | None = None
        self._returns = RunningStat()

    def make_networks(self) -> Mapping[str, Any]:
        """Returns the fixed network and the one that learns to foretell it."""
        features = Features(self.embed_dim, self.network_config(self.net_config))
        return {"target": features, "prediction": features}

    def intrinsic_rewards(self, batch: Any) -> Array:
        """Returns r^i for each row, float32 `[B]`, and does a step of the second network."""
        obs = np.asarray(batch[NEXT_OBS], np.float64)
        self._obs = RunningStat(obs.shape[1:]) if self._obs is None else self._obs
        self._obs.update(RunningStat.of(obs))
        normal = np.clip((obs - self._obs.mean) / (self._obs.std + _SMALL), -_CLIP, _CLIP).astype(np.float32)
        errors: Array = self.networks.learn(_distillation_loss, normal)
        self._returns.update(RunningStat.of(discount_cumsum(errors, float(self.policy_config.get("gamma", 0.99)))))
        scaled: Array = self.eta * errors / (self._returns.std + _SMALL)
        return scaled.astype(np.float32)

    def get_state(self, sess: Any = None) -> State:
        """Returns the state of `IntrinsicReward`, and the running means and deviations."""
        obs = None if self._obs is None else self._obs.get_state()
        return {**super().get_state(sess), "obs": obs, "returns": self._returns.get_state()}

    def set_state(self, state: State, sess: Any = None) -> None:
        """Takes back what `get_state` returned."""
        super().set_state(state, sess)
        if state.get("obs") is not None:
            self._obs = RunningStat(np.shape(state["obs"]["mean"]))
            self._obs.set_state(state["obs"])
        if "returns" in state:
            self._returns.set_state(state["returns"])


def _distillation_loss(networks: Any, obs: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the mean squared error of the second network, and that of each row `[B]`, for observations `[B, ...]`."""
    target = ops.without_gradient(functools.partial(networks, "target"), obs)
    missed = ops.mean(ops.square(networks("prediction", obs) - target), 1)
    return ops.mean(missed), missed
