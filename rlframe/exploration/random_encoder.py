"""RE3: states that are far from others, in the features of a random network, are worth a reward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.data.columns import OBS
from rlframe.exploration.exploration import Array, State
from rlframe.exploration.intrinsic import Features, IntrinsicReward
from rlframe.utils.errors import ConfigError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rlframe.exploration.exploration import ExplorationArgs


class RE3(IntrinsicReward):
    """Random encoders for efficient exploration: a reward that grows with the distance to the k-th nearest state.

        r^i_t = β_n · log(1 + ‖ y_t − y_t^{k-NN} ‖),   y = f(s), f random and fixed
        β_n = β (constant), or β (1 − ρ)^n (linear_decay)

    Distances are those to the states sampled last, `memory` of them, the trajectory's own among them. n counts
    iterations: time steps over what an iteration samples at least (`train_batch_size`, `timesteps_per_iteration`).

    Args:
        action_space: The environment's action space.
        embeds_dim: Size of the features y.
        encoder_net_config: The `model` section of the network f; None takes the policy's.
        beta: Factor β on the rewards at the beginning.
        beta_schedule: "constant" or "linear_decay".
        rho: Rate ρ of the decay, per iteration.
        k_nn: Which of the nearest states counts; of fewer states, the farthest.
        memory: Number of states that distances are measured to.
        sub_exploration: Config of the exploration that chooses actions.
        **base: See `Exploration`.

    Raises:
        ConfigError: If there is no `sub_exploration`, or no such schedule.

    Source: Seo et al. 2021, "State Entropy Maximization with Random Encoders for Efficient Exploration", eqs. 2 and 3,
    algorithm 1.
    """

    reads = ()

    def __init__(  # noqa: PLR0913 (RLlib's keys)
        self,
        action_space: Any,
        *,
        embeds_dim: int = 128,
        encoder_net_config: Mapping[str, Any] | None = None,
        beta: float = 0.2,
        beta_schedule: str = "constant",
        rho: float = 0.1,
        k_nn: int = 50,
        memory: int = 4000,
        sub_exploration: Mapping[str, Any] | None = None,
        **base: Unpack[ExplorationArgs],
    ) -> None:
        super().__init__(action_space, sub_exploration=sub_exploration, **base)
        if beta_schedule not in ("constant", "linear_decay"):
            raise ConfigError(
                f"exploration_config.beta_schedule: got {beta_schedule!r}, wanted 'constant' or 'linear_decay'"
            )
        self.embeds_dim, self.encoder_net_config = embeds_dim, encoder_net_config
        self.beta, self.beta_schedule, self.rho, self.k_nn, self.memory = beta, beta_schedule, rho, k_nn, memory
        self._last: Array = np.zeros((0, embeds_dim), np.float32)

    def make_networks(self) -> Mapping[str, Any]:
        """Returns the random network."""
        return {"encoder": Features(self.embeds_dim, self.network_config(self.encoder_net_config))}

    def intrinsic_rewards(self, batch: Any) -> Array:
        """Returns r^i for each row, float32 `[B]`."""
        embeds: Array = self.networks.compute("encoder", batch[OBS])
        self._last = np.concatenate([self._last, embeds])[-max(self.memory, len(embeds)) :]
        distances = kth_distances(embeds, self._last, self.k_nn)
        return (self.current_beta() * np.log1p(distances)).astype(np.float32)

    def current_beta(self) -> float:
        """Returns β_n."""
        if self.beta_schedule == "constant":
            return self.beta
        config = self.policy_config
        rows = max(int(config.get("train_batch_size") or 1), int(config.get("timesteps_per_iteration") or 1))
        return float(self.beta * (1.0 - self.rho) ** (self.last_timestep // rows))

    def get_state(self, sess: Any = None) -> State:
        """Returns the state of `IntrinsicReward`, and the features of the last states."""
        return {**super().get_state(sess), "last": self._last.copy()}

    def set_state(self, state: State, sess: Any = None) -> None:
        """Takes back what `get_state` returned."""
        super().set_state(state, sess)
        if "last" in state:
            self._last = np.asarray(state["last"], np.float32)


def kth_distances(embeds: Array, others: Array, k: int) -> Array:
    """Returns the distance of each row to its k-th nearest among others that contain it, itself not counted.

    Args:
        embeds: Float `[B, D]`.
        others: Float `[N, D]`, N >= B, the rows of `embeds` among them.
        k: At least 1; of fewer others, the farthest counts.

    Returns:
        Float32 `[B]`; zeros where there are no others.
    """
    x, y = embeds.astype(np.float64), others.astype(np.float64)
    squares = np.square(x).sum(1)[:, None] + np.square(y).sum(1)[None] - 2.0 * x @ y.T
    nearest = min(k, len(others) - 1)
    return np.sqrt(np.maximum(np.partition(squares, nearest, axis=1)[:, nearest], 0.0)).astype(np.float32)
