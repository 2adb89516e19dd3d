"""Curiosity: transitions that a learned model of the environment did not foresee are worth a reward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlframe.data.columns import ACTIONS, NEXT_OBS, OBS
from rlframe.exploration.exploration import Array
from rlframe.exploration.intrinsic import Features, IntrinsicReward, choices, dense_network, one_hot_choices
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rlframe.exploration.exploration import ExplorationArgs


class Curiosity(IntrinsicReward):
    """The intrinsic curiosity module: a reward for what its forward model did not foresee in feature space.

        r^i_t = η/2 · ‖ φ̂(s_{t+1}) − φ(s_{t+1}) ‖²,   φ̂(s_{t+1}) = forward(φ(s_t), a_t)
        L = (1 − β) · mean −log p(a_t | φ(s_t), φ(s_{t+1})) + β · mean ½ ‖ φ̂(s_{t+1}) − φ(s_{t+1}) ‖²

    One Adam step on L is done for each trajectory, after its rewards were computed.

    Args:
        action_space: The environment's action space, Discrete or MultiDiscrete.
        feature_dim: Size of the features φ.
        feature_net_config: The `model` section of the network φ; None takes the policy's.
        inverse_net_hiddens: Hidden layers of the inverse model, which tells the action from two features.
        inverse_net_activation: Their activation.
        forward_net_hiddens: Hidden layers of the forward model.
        forward_net_activation: Their activation.
        beta: Weight β of the forward model's loss, in [0, 1].
        eta: Factor η on the rewards.
        lr: Learning rate.
        sub_exploration: Config of the exploration that chooses actions.
        **base: See `Exploration`.

    Raises:
        ConfigError: If there is no `sub_exploration`.
        UnsupportedSpaceException: If the action space is of another kind.

    Source: Pathak et al. 2017, "Curiosity-driven Exploration by Self-supervised Prediction", eqs. 2 to 7.
    """

    learning = ("features", "inverse", "prediction")

    def __init__(  # noqa: PLR0913 (RLlib's keys)
        self,
        action_space: Any,
        *,
        feature_dim: int = 288,
        feature_net_config: Mapping[str, Any] | None = None,
        inverse_net_hiddens: Sequence[int] = (256,),
        inverse_net_activation: str = "relu",
        forward_net_hiddens: Sequence[int] = (256,),
        forward_net_activation: str = "relu",
        beta: float = 0.2,
        eta: float = 1.0,
        lr: float = 1e-3,
        sub_exploration: Mapping[str, Any] | None = None,
        **base: Unpack[ExplorationArgs],
    ) -> None:
        self._counts = choices(action_space)
        super().__init__(action_space, sub_exploration=sub_exploration, **base)
        self.feature_dim, self.feature_net_config = feature_dim, feature_net_config
        self.inverse_net = tuple(inverse_net_hiddens), inverse_net_activation
        self.forward_net = tuple(forward_net_hiddens), forward_net_activation
        self.beta, self.eta, self.lr = beta, eta, lr

    def make_networks(self) -> Mapping[str, Any]:
        """Returns features, inverse and forward model."""
        features, choice = self.feature_dim, sum(self._counts)
        return {
            "features": Features(features, self.network_config(self.feature_net_config)),
            "inverse": dense_network(2 * features, self.inverse_net, choice),
            "prediction": dense_network(features + choice, self.forward_net, features),
        }

    def intrinsic_rewards(self, batch: Any) -> Array:
        """Returns r^i for each row, float32 `[B]`, and does a step on the loss."""
        actions = one_hot_choices(batch[ACTIONS], self.action_space)
        rewards: Array = self.eta * self.networks.learn(self._loss, batch[OBS], batch[NEXT_OBS], actions)
        return rewards

    def _loss(self, networks: Any, obs: Tensor, next_obs: Tensor, taken: Tensor) -> tuple[Tensor, Tensor]:
        """Returns L, and ½ ‖ φ̂(s_{t+1}) − φ(s_{t+1}) ‖² `[B]`, for observations `[B, ...]` and choices `[B, A]`."""
        both = networks("features", ops.concat([obs, next_obs], 0))  # one pass
        phi, next_phi = both[: len(obs)], both[len(obs) :]
        missed = 0.5 * ops.sum(ops.square(networks("prediction", phi, taken) - next_phi), 1)
        logits = ops.split(networks("inverse", phi, next_phi), self._counts)
        logp = ops.concat([ops.log_softmax(part) for part in logits], 1)
        unlikely = -ops.mean(ops.sum(taken * logp, 1))
        return (1.0 - self.beta) * unlikely + self.beta * ops.mean(missed), missed
