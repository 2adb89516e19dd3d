"""What a policy is worth, estimated from the experience of another, by importance sampling.

With the probabilities mu(a|s) of the actions in the data and pi(a|s) of the policy's, step by step in an episode:

    p_t    = prod_{k<=t} pi(a_k|s_k) / mu(a_k|s_k)
    V_prev = sum_t gamma^t r_t
    V_IS   = sum_t gamma^t p_t r_t
    V_WIS  = sum_t gamma^t (p_t / w_t) r_t,   w_t the mean of p_t over the episodes so far that are as long

Source: Precup, Sutton & Singh 2000, "Eligibility Traces for Off-Policy Policy Evaluation", section 3; Thomas 2015,
"Safe Reinforcement Learning", section 3.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import (
    ACTION_LOGP,
    ACTION_PROB,
    ACTIONS,
    N_STEPS,
    OBS,
    PREV_ACTIONS,
    PREV_REWARDS,
    REWARDS,
    SEQ_LENS,
)
from rlframe.data.sample_batch import DEFAULT_POLICY_ID, MultiAgentBatch, SampleBatch
from rlframe.offline.io_context import IOContext
from rlframe.offline.preparing import logged_log_likelihood, split_trajectories
from rlframe.utils.errors import ConfigError
from rlframe.utils.numpy import convert_to_numpy

_LOGGER = logging.getLogger("rlframe")


class OffPolicyEstimate(NamedTuple):
    """An estimate of one episode.

    Attributes:
        estimator_name: "is" or "wis".
        metrics: Numbers by name: `V_prev`, `V_step_IS` or `V_step_WIS`, `V_gain_est`.
    """

    estimator_name: str
    metrics: dict[str, float]


class OffPolicyEstimator:
    """Estimates a policy's return from episodes of another.

    Args:
        policy: The policy.
        gamma: Discount per step.
    """

    #: Name in results.
    name = "off_policy"

    def __init__(self, policy: Any, gamma: float) -> None:
        self.policy, self.gamma = policy, gamma
        self.new_estimates: list[OffPolicyEstimate] = []

    @classmethod
    def create_from_io_context(cls, ioctx: IOContext) -> OffPolicyEstimator:
        """Returns an estimator for the policy of a context's worker.

        Raises:
            ConfigError: If the worker has several policies.
        """
        policies = ioctx.worker.policy_map
        if list(policies) != [DEFAULT_POLICY_ID]:
            raise ConfigError(
                f"input_evaluation: got several policies ({', '.join(policies)}), wanted one; set it to []"
            )
        return cls(policies[DEFAULT_POLICY_ID], float(ioctx.config.gamma))

    @classmethod
    def create(cls, *args: Any, **kwargs: Any) -> OffPolicyEstimator:
        """Returns what `create_from_io_context` does (RLlib's older name)."""
        return cls.create_from_io_context(*args, **kwargs)

    def action_prob(self, batch: SampleBatch) -> NDArray[np.float64]:
        """Returns pi(a|s) `[B]` of a batch's actions (RLlib's older name)."""
        return np.exp(self.action_log_likelihood(batch))

    def estimate(self, batch: SampleBatch) -> OffPolicyEstimate:
        """Returns the estimate of one episode."""
        raise NotImplementedError(f"{type(self).__name__} has no estimate(batch)")

    def action_log_likelihood(self, batch: SampleBatch) -> NDArray[np.float64]:
        """Returns log pi(a|s) `[B]` of a batch's actions, which are in the policy's space."""
        logp = self.policy.compute_log_likelihoods(
            batch[ACTIONS], batch[OBS], None, batch.get(PREV_ACTIONS), batch.get(PREV_REWARDS)
        )
        return np.asarray(convert_to_numpy(logp), np.float64)

    def importance_ratios(self, batch: SampleBatch) -> NDArray[np.float64]:
        """Returns p_t `[B]` of an episode."""
        behaviour = logged_log_likelihood(batch)
        assert behaviour is not None  # `check_can_estimate_for` has found some
        return np.exp(np.cumsum(self.action_log_likelihood(batch) - behaviour))

    def discounted(self, rewards: Any) -> NDArray[np.float64]:
        """Returns gamma^t r_t `[B]`."""
        given = np.asarray(rewards, np.float64)
        return given * self.gamma ** np.arange(len(given))

    def check_can_estimate_for(self, batch: SampleBatch | MultiAgentBatch) -> None:
        """Checks that a batch has what estimates are made of.

        Raises:
            ValueError: If it is of several policies, or has no probabilities of its actions.
        """
        if isinstance(batch, MultiAgentBatch):
            raise ValueError(
                'input_evaluation: got rows of several policies, wanted one\'s; set "input_evaluation": []'
            )
        if len(self.policy.get_initial_state()) or SEQ_LENS in batch:
            raise ValueError(
                'input_evaluation: got a policy with memory, wanted one without; set "input_evaluation": []'
            )
        if N_STEPS in batch and (np.asarray(batch[N_STEPS]) > 1).any():
            raise ValueError(
                "input_evaluation: got rows with sums of several rewards, wanted single steps; set "
                '"input_evaluation": []'
            )
        if ACTION_PROB not in batch and ACTION_LOGP not in batch:
            raise ValueError(
                "input_evaluation: got data without action_prob, by which estimates are weighted; set "
                '"input_evaluation": [], or write the probability with which each action was chosen'
            )

    def process(self, batch: SampleBatch | MultiAgentBatch) -> None:
        """Makes an estimate of each episode in a batch, for `get_metrics`."""
        self.check_can_estimate_for(batch)
        assert isinstance(batch, SampleBatch)
        self.new_estimates += [self.estimate(episode) for episode in split_trajectories(batch)]

    def get_metrics(self) -> list[OffPolicyEstimate]:
        """Returns the estimates made since the last call."""
        made, self.new_estimates = self.new_estimates, []
        return made

    def get_state(self) -> dict[str, Any]:
        """Returns what estimates depend on beside their episode."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes that back."""

    def _gain(self, estimate: float, previous: float) -> float:
        return estimate / max(1e-8, previous)


class ImportanceSamplingEstimator(OffPolicyEstimator):
    """Step-wise importance sampling: without bias, of large variance."""

    name = "is"

    def estimate(self, batch: SampleBatch) -> OffPolicyEstimate:
        """Returns `V_prev`, `V_step_IS` and their ratio `V_gain_est` of one episode."""
        rewards = self.discounted(batch[REWARDS])
        previous, value = float(rewards.sum()), float((self.importance_ratios(batch) * rewards).sum())
        return OffPolicyEstimate(
            self.name, {"V_prev": previous, "V_step_IS": value, "V_gain_est": self._gain(value, previous)}
        )


class WeightedImportanceSamplingEstimator(OffPolicyEstimator):
    """The same with ratios over their mean at that step: of smaller variance, with a bias that vanishes."""

    name = "wis"

    def __init__(self, policy: Any, gamma: float) -> None:
        super().__init__(policy, gamma)
        self._sums = np.zeros(0)
        self._counts = np.zeros(0)

    def estimate(self, batch: SampleBatch) -> OffPolicyEstimate:
        """Returns `V_prev`, `V_step_WIS` and their ratio `V_gain_est` of one episode."""
        rewards, ratios = self.discounted(batch[REWARDS]), self.importance_ratios(batch)
        more = max(len(ratios) - len(self._sums), 0)
        self._sums, self._counts = np.pad(self._sums, (0, more)), np.pad(self._counts, (0, more))
        self._sums[: len(ratios)] += ratios
        self._counts[: len(ratios)] += 1
        means = self._sums[: len(ratios)] / self._counts[: len(ratios)]
        weights = np.divide(ratios, means, out=np.zeros_like(ratios), where=means > 0)
        previous, value = float(rewards.sum()), float((weights * rewards).sum())
        return OffPolicyEstimate(
            self.name, {"V_prev": previous, "V_step_WIS": value, "V_gain_est": self._gain(value, previous)}
        )

    def get_state(self) -> dict[str, Any]:
        """Returns sums and counts of the ratios by step."""
        return {"sums": self._sums.copy(), "counts": self._counts.copy()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes them back."""
        self._sums, self._counts = np.array(state["sums"]), np.array(state["counts"])


_BY_NAME = {made.name: made for made in (ImportanceSamplingEstimator, WeightedImportanceSamplingEstimator)}


_SWITCHED_OFF = "switched_off"


class InputEvaluation:
    """The estimators that `input_evaluation` names, at work on what a worker reads.

    By default they are on for all data. Where there is nothing to weight it by, or several policies, that is said once.

    Args:
        ioctx: The worker's context.
    """

    def __init__(self, ioctx: IOContext) -> None:
        names = list(ioctx.config.input_evaluation)
        self.simulates, self._switched_off = "simulation" in names, False
        several = list(ioctx.worker.policy_map) != [DEFAULT_POLICY_ID]
        if several and names:
            _LOGGER.warning("input_evaluation: several policies are not judged from data; set it to []")
        self.estimators = (
            [] if several else [made.create_from_io_context(ioctx) for name, made in _BY_NAME.items() if name in names]
        )

    def process(self, batch: SampleBatch | MultiAgentBatch) -> None:
        """Makes estimates of a batch."""
        if not self.estimators or not batch.count:
            return
        try:
            self.estimators[0].check_can_estimate_for(batch)
        except ValueError as error:
            _LOGGER.warning("%s; no estimates are made", error)
            self.estimators, self._switched_off = [], True
        for estimator in self.estimators:
            estimator.process(batch)

    def get_metrics(self) -> list[OffPolicyEstimate]:
        """Returns the estimates made since the last call."""
        return [estimate for estimator in self.estimators for estimate in estimator.get_metrics()]

    def get_state(self) -> dict[str, Any]:
        """Returns the estimators' states by name, and whether the data was found not to be fit for them."""
        states: dict[str, Any] = {estimator.name: estimator.get_state() for estimator in self.estimators}
        return states | {_SWITCHED_OFF: self._switched_off}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes them back; estimators that had none begin anew."""
        if state.get(_SWITCHED_OFF):
            self.estimators, self._switched_off = [], True
        for estimator in self.estimators:
            if estimator.name in state:
                estimator.set_state(state[estimator.name])


__all__ = [
    "ImportanceSamplingEstimator",
    "OffPolicyEstimate",
    "OffPolicyEstimator",
    "WeightedImportanceSamplingEstimator",
]
