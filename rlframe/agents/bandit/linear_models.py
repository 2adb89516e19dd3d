"""Linear models of rewards with their exact posterior, in NumPy: one for each arm, or one for the features of all."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlframe.models.nested_parts import columns_of_part
from rlframe.utils.errors import UnsupportedSpaceException

Array = NDArray[np.float64]
ITEM = "item"
_LOGGER = logging.getLogger("rlframe")


class OnlineLinearRegression:
    """Bayesian linear regression of rewards on features, a row at a time, for each of several arms.

        V = (λI + Σ x xᵀ)⁻¹,  θ = V Σ y x,   the posterior of the weights is N(θ, αV)

    A row changes V by a matrix of rank one, so nothing is inverted:

        V ← V − V x xᵀ V / (1 + xᵀ V x),  θ ← θ + V x (y − xᵀ θ)  with the new V

    Attributes:
        theta: Means of the weights, float64 `[K, d]`.
        covariance: V of each arm, float64 `[K, d, d]`.

    Args:
        feature_dim: d, the number of features.
        alpha: α, the factor on V.
        lambda_: λ, the prior precision.
        arms: K, the number of regressions.

    Source: Li et al. 2010, algorithm 1; Sherman and Morrison 1950.
    """

    def __init__(self, feature_dim: int, alpha: float = 1.0, lambda_: float = 1.0, arms: int = 1) -> None:
        self.alpha = float(alpha)
        self.theta: Array = np.zeros((arms, feature_dim))
        self.covariance: Array = np.tile(np.eye(feature_dim) / float(lambda_), (arms, 1, 1))
        self._roots: Array | None = None

    def partial_fit(self, x: Any, y: float, arm: int = 0) -> None:
        """Takes a row of features `[d]` and its reward into the posterior of one arm."""
        features = np.asarray(x, np.float64)
        moved = self.covariance[arm] @ features
        gain = moved / (1.0 + features @ moved)
        # The product of a vector with itself: unlike gain and moved apart, it stays symmetric to the last bit.
        self.covariance[arm] -= np.outer(moved, moved) / (1.0 + features @ moved)
        self.theta[arm] += gain * (float(y) - features @ self.theta[arm])
        self._roots = None

    def sample_theta(self, rng: np.random.Generator, rows: int = 1) -> Array:
        """Returns weights drawn from the posterior, `[rows, K, d]`."""
        roots = self._roots
        if roots is None:
            self._roots = roots = np.asarray(math.sqrt(self.alpha) * np.linalg.cholesky(self.covariance), np.float64)
        drawn = rng.standard_normal((rows, *self.theta.shape))
        return np.asarray(self.theta + (roots @ drawn[..., None])[..., 0], np.float64)

    def scores(self, x: Array, theta: Array | None = None) -> Array:
        """Returns xᵀθ, `[B, A]`, of features `[B, A or 1, d]`, with the means unless other weights are given."""
        return np.asarray((x * (self.theta if theta is None else theta)).sum(-1))

    def get_ucbs(self, x: Array) -> Array:
        """Returns √(α xᵀ V x), `[B, A]`, of features `[B, A or 1, d]`."""
        projected = (x[..., None, :] @ self.covariance)[..., 0, :]
        return np.asarray(np.sqrt(self.alpha * (projected * x).sum(-1)), np.float64)

    def get_weights(self) -> dict[str, NDArray[Any]]:
        """Returns copies of means and covariances."""
        return {"output.weight": self.theta.copy(), "covariance": self.covariance.copy()}

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Takes what `get_weights` returned."""
        self.theta = np.array(weights["output.weight"], np.float64).reshape(self.theta.shape)
        self.covariance = np.array(weights["covariance"], np.float64).reshape(self.covariance.shape)
        self._roots = None


class _Numbers(np.ndarray):
    """An array with the two methods by which programs got at RLlib's tensors."""

    def numpy(self) -> NDArray[Any]:
        """Returns the plain array."""
        return self.view(np.ndarray)

    def detach(self) -> _Numbers:
        """Returns itself."""
        return self


class Arm:
    """What one arm has learned, under RLlib's names, for programs that draw or print it.

    Attributes:
        theta: Means of the weights, `[d]`.
        covariance: Covariance αV of the weights, `[d, d]`.
        precision: V⁻¹, `[d, d]`.
        f: V⁻¹θ, the sum of rewards times features, `[d]`.
    """

    def __init__(self, regression: OnlineLinearRegression, arm: int) -> None:
        posterior, theta = regression.covariance[arm], regression.theta[arm]
        precision = np.linalg.inv(posterior)
        self.theta, self.covariance = theta.view(_Numbers), (regression.alpha * posterior).view(_Numbers)
        self.precision, self.f = precision.view(_Numbers), (precision @ theta).view(_Numbers)


class DiscreteLinearModel:
    """A regression for each action, of the whole observation: what arms have in common is not shared.

    Args:
        obs_space: Preprocessed observation space, vectors.
        action_space: A Discrete space.
        num_outputs: A, the number of actions.
        model_config: Its `alpha` and `lambda_` are read.
        name: The model's name.

    Raises:
        UnsupportedSpaceException: If the model cannot serve these spaces.
    """

    #: Prior precision where the config has none, and the weight of bounds.
    default_lambda: ClassVar[float] = 1.0
    bound_weight: ClassVar[float] = 1.0

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, model_config: Any, name: str = "LinearModel"
    ) -> None:
        self.obs_space, self.action_space, self.num_outputs, self.name = obs_space, action_space, num_outputs, name
        given = model_config.get("lambda_")
        arms, size = self.arms_and_features()
        self.regression = OnlineLinearRegression(
            size, model_config.get("alpha", 1.0), self.default_lambda if given is None else given, arms
        )

    @property
    def arms(self) -> list[Arm]:
        """What each regression has learned so far: that of each action, or the one for all."""
        return [Arm(self.regression, arm) for arm in range(len(self.regression.theta))]

    def arms_and_features(self) -> tuple[int, int]:
        """Returns the number of regressions and of their features."""
        if len(self.obs_space.shape) != 1:
            raise UnsupportedSpaceException(
                f"got observations of {self.obs_space}; linear bandits want vectors of features, or a Dict with "
                f"{ITEM!r}, the features of each action: flatten them in an environment wrapper"
            )
        return self.num_outputs, int(self.obs_space.shape[0])

    def features(self, obs: NDArray[Any]) -> Array:
        """Returns the features of observations `[B, D]`: `[B, 1, d]`, the same for all arms."""
        return np.asarray(obs, np.float64)[:, None, :]

    def predict(
        self,
        obs: NDArray[Any],
        sample_theta: bool = False,
        use_ucb: bool = False,
        rng: np.random.Generator | None = None,
    ) -> Array:
        """Returns the score of each action, `[B, A]`.

        Args:
            obs: Preprocessed observations `[B, D]`.
            sample_theta: Whether weights are drawn from the posterior, anew for each row, with `rng`.
            use_ucb: Whether scores are upper bounds.
            rng: Where draws come from.
        """
        x = self.features(obs)
        theta = self.regression.sample_theta(rng or np.random.default_rng(), len(x)) if sample_theta else None
        scores = self.regression.scores(x, theta)
        return scores + self.bound_weight * self.regression.get_ucbs(x) if use_ucb else scores

    def forward(self, obs: NDArray[Any], rng: np.random.Generator) -> Array:  # noqa: ARG002 (for subclasses)
        """Returns the scores that an exploring policy acts on, `[B, A]`: here those of the means."""
        return self.predict(obs)

    def partial_fit(self, obs: NDArray[Any], rewards: NDArray[Any], arms: NDArray[Any]) -> None:
        """Takes rows into the posterior, in their order: observations `[B, D]`, rewards `[B]`, actions `[B]`."""
        for x, reward, arm in zip(self.features(obs)[:, 0], rewards, arms, strict=True):
            self.regression.partial_fit(x, reward, int(arm))


class DiscreteLinearModelUCB(DiscreteLinearModel):
    """Scores are θ_aᵀ x + √(α xᵀ V_a x). Source: Li et al. 2010, algorithm 1."""

    def forward(self, obs: NDArray[Any], rng: np.random.Generator) -> Array:  # noqa: ARG002
        """Returns the bounds, `[B, A]`."""
        return self.predict(obs, use_ucb=True)


class DiscreteLinearModelThompsonSampling(DiscreteLinearModel):
    """Scores are θ̃_aᵀ x, θ̃_a drawn from N(θ_a, αV_a). Source: Agrawal and Goyal 2013, algorithm 1."""

    def forward(self, obs: NDArray[Any], rng: np.random.Generator) -> Array:
        """Returns scores of drawn weights, `[B, A]`."""
        return self.predict(obs, sample_theta=True, rng=rng)


class ParametricLinearModel(DiscreteLinearModel):
    """One regression for all actions, whose features are rows of `item`; other parts of the observation are not read.

    Actions are places in `item`: what is learned of one serves all that resemble it, and items may change each step.
    Of more actions than rows the first ones have scores.
    """

    default_lambda = 0.1
    bound_weight = 0.3

    def arms_and_features(self) -> tuple[int, int]:
        """Returns 1 and the length of an item's features."""
        space: Any = self.obs_space.original_space
        item = space[ITEM]
        if not isinstance(item, gym.spaces.Box) or len(item.shape) != 2 or item.shape[0] > self.num_outputs:
            raise UnsupportedSpaceException(
                f"got observations of {space}; of a Dict linear bandits want {ITEM!r}, a Box of shape "
                f"({self.num_outputs}, features), a row for each action"
            )
        if item.shape[0] < self.num_outputs:  # slates by number, as RLlib's course has them, beside single items
            _LOGGER.warning(
                "linear bandits: %r has %s rows for %s actions; those from %s on are never taken",
                ITEM, item.shape[0], self.num_outputs, item.shape[0],
            )  # fmt: skip
        self._columns, self._shape = columns_of_part(space, ITEM), item.shape
        return 1, int(item.shape[1])

    def features(self, obs: NDArray[Any]) -> Array:
        """Returns the features of flat observations `[B, D]`: those of each item, `[B, A, d]`."""
        return np.asarray(obs[:, self._columns], np.float64).reshape(-1, *self._shape)

    def partial_fit(self, obs: NDArray[Any], rewards: NDArray[Any], arms: NDArray[Any]) -> None:
        """Takes rows into the posterior, in their order: the features of the item that was chosen, and its reward."""
        for x, reward, arm in zip(self.features(obs), rewards, arms, strict=True):
            self.regression.partial_fit(x[int(arm)], reward)


class ParametricLinearModelUCB(ParametricLinearModel):
    """Scores are θᵀ x_a + 0.3 √(α x_aᵀ V x_a)."""

    def forward(self, obs: NDArray[Any], rng: np.random.Generator) -> Array:  # noqa: ARG002
        """Returns the bounds, `[B, A]`."""
        return self.predict(obs, use_ucb=True)


class ParametricLinearModelThompsonSampling(ParametricLinearModel):
    """Scores are θ̃ᵀ x_a, with one θ̃ for all items of a step."""

    def forward(self, obs: NDArray[Any], rng: np.random.Generator) -> Array:
        """Returns scores of drawn weights, `[B, A]`."""
        return self.predict(obs, sample_theta=True, rng=rng)
