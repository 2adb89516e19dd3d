"""A policy's value by the experience of another, by each estimator; with intervals, and refusals with their reasons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from rlframe.offline.evaluation import importance
from rlframe.offline.evaluation.bootstrap import (
    Draws,
    Floats,
    Interval,
    as_dict,
    by_spread,
    mean_of,
    percentile,
    studentised,
)
from rlframe.offline.evaluation.fitted_q import FittedQ
from rlframe.offline.evaluation.fitted_q_policy import FittedQSettings
from rlframe.offline.evaluation.linear_q import Features, LinearModel, cross_fitted
from rlframe.offline.evaluation.logged_episodes import LoggedEpisodes
from rlframe.offline.evaluation.target_policy import TargetPolicy
from rlframe.utils.errors import ConfigError, DataError

#: The estimators by name, with what they are.
ESTIMATORS = {
    "tis": "importance sampling, whole episodes",
    "is": "importance sampling, step-wise (PDIS)",
    "wis": "the same, weighted",
    "dm": "direct method, linear Q",
    "dr": "doubly robust, cross-fitted",
    "fqe": "fitted Q evaluation, networks",
}
#: Other names of theirs.
_SAME = {"pdis": "is"}
#: Which one decides where nobody says. Models alone (dm, fqe) do not: they value actions that nobody took, too.
DECIDING = "dr"
_ROUNDED = 1e-4  # of a log-probability
#: Largest and smallest log p_t: beyond, numbers would overflow that no estimate could rest on anyway.
_MOST_LOG_RATIO = 150.0
#: Refits by which the direct method's interval is made.
_REFITS = 200
#: Fewest episodes that intervals are made of.
_FEWEST_EPISODES = 10
#: Smallest mean probability, under the policy, of actions in the data: below, Q would be of actions that nobody took.
_LEAST_AGREEMENT = 0.01


@dataclass(frozen=True)
class OffPolicySettings:
    """How a policy is judged.

    Attributes:
        gamma: Discount per step.
        estimators: Names in `ESTIMATORS`; "pdis" is "is".
        level: Coverage of intervals, in (0, 1).
        resamples: How often episodes are drawn again.
        folds: Parts of the data that Q of the doubly robust estimator is cross-fitted over.
        least_ess: Effective sample size, in episodes, below which weighted estimates are refused.
        seed: Of drawing again and of networks.
        fitted_q: How networks are fitted.

    Raises:
        ConfigError: If an estimator is unknown, or a number is out of its bounds.
    """

    gamma: float
    estimators: tuple[str, ...] = tuple(ESTIMATORS)
    level: float = 0.95
    resamples: int = 1000
    folds: int = 5
    least_ess: float = 10.0
    seed: int = 0
    fitted_q: FittedQSettings = field(default_factory=FittedQSettings)

    def __post_init__(self) -> None:
        for name in self.estimators or ("none",):
            self.check_name(name)
        if not 0.0 <= self.gamma <= 1.0 or not 0.0 < self.level < 1.0:
            raise ConfigError(
                f"gamma={self.gamma}, level={self.level}: wanted a discount in [0, 1] and a level between 0 and 1"
            )

    @staticmethod
    def check_name(name: str) -> None:
        """Raises a ConfigError where there is no estimator of a name."""
        if _SAME.get(name, name) not in ESTIMATORS:
            raise ConfigError(f"estimators: got {name!r}, wanted some of {', '.join(ESTIMATORS)}")

    @property
    def names(self) -> tuple[str, ...]:
        """The estimators under their own names, each once."""
        return tuple(dict.fromkeys(_SAME.get(name, name) for name in self.estimators))


@dataclass(frozen=True)
class PolicyEstimate:
    """What one estimator says.

    Attributes:
        value: The policy's value, in discounted reward units.
        gain: The policy's value less the behaviour's, by the same episodes drawn again.
        effective_sample_size: In episodes; None where nothing is weighted.
    """

    value: Interval
    gain: Interval
    effective_sample_size: float | None


@dataclass(frozen=True)
class OffPolicyReport:
    """What the data say of a policy.

    Attributes:
        behaviour: The value of who made the data: their mean discounted return.
        estimates: By estimator.
        refused: Reasons, by estimators that the data have no answer by.
        episodes: N.
        rows: R.
        left_out: Episodes without beginning or end.
        time_limit: Rows at which episodes were cut, or None.
        explore: Whether the policy explores.
        settings: How it was judged.
    """

    behaviour: Interval
    estimates: dict[str, PolicyEstimate]
    refused: dict[str, str]
    episodes: int
    rows: int
    left_out: int
    time_limit: int | None
    explore: bool
    settings: OffPolicySettings

    def deciding(self, name: str | None = None) -> str:
        """Returns the estimator by which it is decided whether the policy is better.

        Args:
            name: Its name; None takes the doubly robust one.

        Raises:
            DataError: If the data have no answer by it.
        """
        name = _SAME.get(name or "", name)
        wanted = name or DECIDING
        if wanted not in self.estimates:
            reason = self.refused.get(wanted, "was not asked for")
            raise DataError(f"the data cannot say whether the policy is better: {wanted}: {reason}")
        return wanted

    def better(self, name: str | None = None) -> bool:
        """Returns whether the lower end of the gain's interval is above 0; see `deciding`.

        The interval is two-sided, so at a level of 0.95 a policy that is as good as the behaviour passes in 2.5 of 100
        cases.
        """
        return self.estimates[self.deciding(name)].gain.low > 0.0

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as plain data."""
        estimates = {
            name: {
                **as_dict(made.value),
                "gain": as_dict(made.gain),
                "effective_sample_size": made.effective_sample_size,
            }
            for name, made in self.estimates.items()
        }
        return {
            "gamma": self.settings.gamma,
            "level": self.settings.level,
            "explore": self.explore,
            "episodes": self.episodes,
            "rows": self.rows,
            "episodes_left_out": self.left_out,
            "time_limit": self.time_limit,
            "behaviour": as_dict(self.behaviour),
            "estimates": estimates,
            "refused": dict(self.refused),
        }


def evaluate_off_policy(
    target: TargetPolicy, episodes: LoggedEpisodes, settings: OffPolicySettings, framework: str = "torch"
) -> OffPolicyReport:
    """Returns what recorded episodes say of a policy.

    Args:
        target: The policy.
        episodes: Of one or several other policies.
        settings: How it is judged.
        framework: "torch" or "tf": in what networks are fitted.

    Raises:
        DataError: If there are too few episodes.
    """
    if len(episodes) < _FEWEST_EPISODES:
        raise DataError(
            f"input: got {len(episodes)} whole episodes, wanted at least {_FEWEST_EPISODES}: intervals are made by "
            "drawing episodes again"
        )
    judged = _Judged(target, episodes, settings, framework)
    made: dict[str, PolicyEstimate] = {}
    refused: dict[str, str] = {}
    for name in settings.names:
        try:
            made[name] = judged.by(name)
        except DataError as error:
            refused[name] = str(error)
    behaviour = studentised(mean_of(judged.returns), judged.draws, settings.level)
    return OffPolicyReport(
        behaviour, made, refused, len(episodes), len(episodes.rewards), episodes.left_out, episodes.time_limit,
        target.explore, settings,
    )  # fmt: skip


class _Judged:
    """A policy and episodes, with what estimators share computed once."""

    def __init__(self, target: TargetPolicy, episodes: LoggedEpisodes, settings: OffPolicySettings, framework: str):
        self.target, self.episodes, self.settings, self.framework = target, episodes, settings, framework
        self.returns = episodes.returns(settings.gamma)
        self.draws = Draws.of(len(episodes), settings.resamples, settings.seed)

    def by(self, name: str) -> PolicyEstimate:
        """Returns what an estimator says; raises a DataError where the data have no answer."""
        ways: dict[str, Callable[[], PolicyEstimate]] = {
            "tis": lambda: self._weighted(importance.trajectory_wise),
            "is": lambda: self._weighted(importance.per_decision),
            "wis": self._self_normalised,
            "dm": self._direct,
            "dr": self._doubly_robust,
            "fqe": self._fitted,
        }
        return ways[name]()

    # --- what several of them need --------------------------------------------------------------------------

    @cached_property
    def _rewards(self) -> Floats:
        return self.episodes.padded(self.episodes.rewards)

    @cached_property
    def _ratios(self) -> tuple[Floats, float]:
        """p_t `[N, T]`, held behind ends, and the effective sample size of p_T."""
        episodes = self.episodes
        if episodes.behaviour_logp is None:
            raise DataError(
                "the data do not say with which probability actions were chosen (action_prob or action_logp): write "
                "it, or take dm or fqe, which need none"
            )
        own = self.target.logp(episodes.obs, episodes.actions)
        if not episodes.behaviour_logp.any():
            raise DataError(
                "action_prob is 1 in every row, as writers say it that do not know it: write the probabilities with "
                "which actions were chosen, or take dm or fqe, which need none"
            )
        if not np.isfinite(episodes.behaviour_logp).all():
            raise DataError("action_prob is 0 or no number in some rows: an action that was taken has a probability")
        if self.target.discrete and (episodes.behaviour_logp > _ROUNDED).any():
            raise DataError("action_prob is above 1 in some rows: write the probability of the action that was taken")
        logs = own - episodes.behaviour_logp
        summed = np.cumsum(episodes.padded(logs), axis=1)  # 0 behind ends: what they ended with is held
        ratios = np.exp(np.clip(summed, -np.inf, _MOST_LOG_RATIO))
        size = importance.effective_sample_size(ratios[:, -1])
        if size < self.settings.least_ess:
            raise DataError(
                f"the policy does too seldom what the data do: of {len(episodes)} episodes {size:.1f} count (effective "
                f"sample size), wanted {self.settings.least_ess:g}; more data, or data of a policy that is nearer"
                + (
                    ""
                    if self.target.discrete
                    else "; if actions in the data are as policies choose them, say "
                    "actions_in_input_normalized (--actions-normalized)"
                )
            )
        return ratios, size

    @cached_property
    def _features(self) -> Features:
        return Features(self.episodes)

    @cached_property
    def _linear(self) -> LinearModel:
        self._check_agreement()
        return LinearModel(self._features.transitions(self.episodes, self.target), self.settings.gamma)

    def _check_agreement(self) -> None:
        """Raises a DataError where the policy hardly ever does what the data do: Q of its actions would be invented."""
        if not self.target.discrete:
            return
        agreement = float(np.exp(self.target.logp(self.episodes.obs, self.episodes.actions)).mean())
        if agreement < _LEAST_AGREEMENT:
            raise DataError(
                f"the policy does what the data do in {agreement:.2%} of the rows, wanted {_LEAST_AGREEMENT:.0%}: what "
                "else it does has no rewards in them"
            )

    def _of_means(self, by_episode: Floats, size: float) -> PolicyEstimate:
        """Returns the estimate that is the mean of numbers by episode, float64 `[N]`."""
        level = self.settings.level
        gain = studentised(mean_of(by_episode - self.returns), self.draws, level)
        return PolicyEstimate(studentised(mean_of(by_episode), self.draws, level), gain, size)

    # --- the estimators -------------------------------------------------------------------------------------

    def _weighted(self, formula: Callable[[Floats, Floats, float], Floats]) -> PolicyEstimate:
        ratios, size = self._ratios
        return self._of_means(formula(ratios, self._rewards, self.settings.gamma), size)

    def _self_normalised(self) -> PolicyEstimate:
        ratios, size = self._ratios
        level, gamma = self.settings.level, self.settings.gamma
        value = importance.weighted_per_decision(ratios, self._rewards, gamma)
        gain = importance.weighted_per_decision(ratios, self._rewards, gamma, less=self.returns)
        return PolicyEstimate(studentised(value, self.draws, level), studentised(gain, self.draws, level), size)

    def _doubly_robust(self) -> PolicyEstimate:
        ratios, size = self._ratios
        values, taken = cross_fitted(self._linear, self.episodes, self.settings.folds)
        padded = self.episodes.padded(values), self.episodes.padded(taken)
        return self._of_means(importance.doubly_robust(ratios, self._rewards, padded, self.settings.gamma), size)

    def _direct(self) -> PolicyEstimate:
        counts = np.vstack([np.ones(len(self.episodes)), self.draws.counts[:_REFITS]])
        first = self._linear.rows.own[self.episodes.starts]
        values = np.array([each @ (first @ self._linear.solve(each)) for each in counts]) / len(self.episodes)
        return self._of_refits(values, counts[1:], percentile, self._misfit())

    def _misfit(self) -> float:
        """Returns how far the linear model of the behaviour is off its mean return.

        A model's own error does not show when it is fitted again. There is one policy whose value is known.
        """
        behaved = LinearModel(self._linear.rows.behaved(), self.settings.gamma)
        theta = behaved.solve(np.ones(len(self.episodes)))
        return abs(float((behaved.rows.taken[self.episodes.starts] @ theta).mean() - self.returns.mean()))

    def _fitted(self) -> PolicyEstimate:
        self._check_agreement()
        fitted = FittedQ(self.target, self.episodes, self._features, self.settings.fitted_q, self.settings.gamma)
        values, counts, misfit = fitted.values(self.framework, self.settings.seed)
        return self._of_refits(values, counts, by_spread, misfit)

    def _of_refits(
        self,
        values: Floats,
        counts: Floats,
        interval: Callable[[float, Floats, float], Interval],
        margin: float,
    ) -> PolicyEstimate:
        """Returns the estimate of models fitted to all episodes, and again to episodes drawn again.

        Args:
            values: The policy's value by each, that of all episodes first. Float64 `[1 + B]`.
            counts: How often each episode was drawn, float64 `[B, N]`.
            interval: Makes the interval of these.
            margin: By which it is widened at both ends.
        """
        level, behaviour = self.settings.level, counts @ self.returns / len(self.returns)
        gain = interval(float(values[0] - self.returns.mean()), values[1:] - behaviour, level)
        value = interval(float(values[0]), values[1:], level)
        return PolicyEstimate(value.widened(margin), gain.widened(margin), None)


__all__ = ["ESTIMATORS", "OffPolicyReport", "OffPolicySettings", "PolicyEstimate", "evaluate_off_policy"]
