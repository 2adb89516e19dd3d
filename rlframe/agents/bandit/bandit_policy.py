"""The policy of linear bandits: scores by a linear model that takes each reward into its posterior, in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlframe.agents.bandit.linear_models import (
    ITEM,
    DiscreteLinearModel,
    DiscreteLinearModelThompsonSampling,
    DiscreteLinearModelUCB,
    ParametricLinearModel,
    ParametricLinearModelThompsonSampling,
    ParametricLinearModelUCB,
)
from rlframe.data.columns import ACTIONS, INFOS, OBS, REWARDS
from rlframe.data.sample_batch import SampleBatch
from rlframe.exploration.thompson_sampling import ThompsonSampling
from rlframe.exploration.upper_confidence_bound import UpperConfidenceBound
from rlframe.models.numpy_dists import numpy_dist_for
from rlframe.models.spec import Dense, Layer
from rlframe.policy.inference import Columns, Inference, NumpyInference, Outputs
from rlframe.policy.parts import Component
from rlframe.policy.policy import Policy
from rlframe.utils.errors import NonFiniteError, UnsupportedSpaceException
from rlframe.utils.numpy import FLOAT_MIN


class BanditInference(NumpyInference):
    """Scores actions: as the exploration wants while it explores, else by the means of the weights."""

    def run(self, columns: Columns, explore: bool) -> Outputs:
        """Returns scores `[B, A]`, of which the largest is acted on; actions without a row of `item` have the least."""
        policy, obs = self.policy, columns[OBS]
        scores = policy.model.forward(obs, policy._action_rng) if explore else policy.model.predict(obs)
        outputs = np.full((len(scores), policy.num_outputs), FLOAT_MIN, np.float32)
        outputs[:, : scores.shape[1]] = scores
        return outputs, None, []

    def values(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        """Returns zeros: nothing follows a step."""
        return np.zeros(len(obs), np.float32)


class BanditPolicy(Policy):
    """A linear bandit. Its model is that of its exploration and of its observations, see `linear_models`."""

    defaults_from = "rlframe.agents.bandit.bandit:DEFAULT_CONFIG"
    train_columns = (INFOS,)
    scores_explore = True
    model: DiscreteLinearModel

    def __init__(self, observation_space: gym.Space[Any], action_space: gym.Space[Any], config: dict[str, Any]) -> None:
        super().__init__(observation_space, action_space, config)
        self._learn_hook: Callable[..., None] | None = None  # the worker sets it
        if not isinstance(self.action_space, gym.spaces.Discrete):
            raise UnsupportedSpaceException(
                f"{type(self).__name__}: got the action space {self.action_space}, wanted a Discrete one, whose "
                "choices are the arms"
            )
        self.numpy_dist, self.num_outputs = numpy_dist_for(self.action_space, None)
        self.exploration = self._create_exploration()
        self.model = self._make_model()
        self.components["regret"] = self._regret = _Regret()

    def _make_model(self) -> DiscreteLinearModel:
        original = getattr(self.observation_space, "original_space", self.observation_space)
        by_item = isinstance(original, gym.spaces.Dict) and ITEM in original.spaces
        kinds: dict[bool, type[DiscreteLinearModel]] = {False: DiscreteLinearModel, True: ParametricLinearModel}
        if isinstance(self.exploration, ThompsonSampling):
            kinds = {False: DiscreteLinearModelThompsonSampling, True: ParametricLinearModelThompsonSampling}
        elif isinstance(self.exploration, UpperConfidenceBound):
            kinds = {False: DiscreteLinearModelUCB, True: ParametricLinearModelUCB}
        return kinds[by_item](self.observation_space, self.action_space, self.num_outputs, self.config["model"])

    def _built_in_inference(self) -> Inference:
        return BanditInference(self, actor=None)

    @property
    def acting_layers(self) -> tuple[Layer, ...] | None:
        """The layer that scores whole observations, for exports; None where items have features."""
        if isinstance(self.model, ParametricLinearModel):
            return None
        return (Dense("output", units=self.num_outputs),)

    # --- weights ----------------------------------------------------------------------------------------------

    def get_weights(self) -> dict[str, NDArray[Any]]:
        """Returns copies of the posterior's means and covariances, float64, and of biases, which are 0."""
        return {**self.model.regression.get_weights(), "output.bias": np.zeros(len(self.model.regression.theta))}

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Takes what `get_weights` returned."""
        self.model.regression.set_weights(weights)

    # --- learning ---------------------------------------------------------------------------------------------

    def learn_on_batch(self, samples: SampleBatch) -> dict[str, Any]:
        """Takes rewards into the posterior, a row at a time.

        Args:
            samples: Rows with `obs`, `actions`, `rewards`, and `infos`, whose `regret` is summed up where it is there.

        Returns:
            `{"learner_stats": ..., "custom_metrics": ...}`.

        Raises:
            NonFiniteError: If a reward is NaN or infinite.
        """
        custom: dict[str, Any] = {}
        if self._learn_hook is not None:
            self._learn_hook(policy=self, train_batch=samples, result=custom)
        obs, actions = np.asarray(samples[OBS]), np.asarray(samples[ACTIONS])
        rewards = np.asarray(samples[REWARDS], np.float64)
        if not np.isfinite(rewards).all():
            raise NonFiniteError(f"{type(self).__name__}: a reward is {rewards[~np.isfinite(rewards)][0]}")
        with self._policy_lock:
            foreseen = self.model.predict(obs)[np.arange(len(actions)), actions.astype(np.int64)]
            self.model.partial_fit(obs, rewards, actions)
        stats = {"reward_mean": float(rewards.mean()), "squared_error": float(np.square(rewards - foreseen).mean())}
        told = self._regret.add(samples.get(INFOS))
        return {"learner_stats": {**stats, **told}, "custom_metrics": custom}


class _Regret(Component):
    """What was missed in all, as the environment tells it."""

    def __init__(self) -> None:
        self._total: float | None = None

    def add(self, infos: Any) -> dict[str, float]:
        """Takes infos `[B]`; returns `{"cumulative_regret": ...}`, nothing where no regret was ever told."""
        told = [float(info["regret"]) for info in (() if infos is None else infos) if info and "regret" in info]
        if told:
            self._total = (self._total or 0.0) + sum(told)
        return {} if self._total is None else {"cumulative_regret": self._total}

    def get_state(self) -> dict[str, Any]:
        """Returns the sum."""
        return {} if self._total is None else {"cumulative_regret": self._total}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes it back."""
        self._total = float(state["cumulative_regret"])


#: RLlib's names of both frameworks' policies; they act and learn in NumPy, whichever the config names.
BanditTorchPolicy = BanditTFPolicy = BanditPolicy
