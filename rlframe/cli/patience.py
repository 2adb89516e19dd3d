"""What a training run does about returns that no longer rise: smaller learning rates, and an end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rlframe.utils.errors import ConfigError


@dataclass(frozen=True)
class Patience:
    """How long a run waits for a better mean return. None waits for ever.

    Attributes:
        early_stop: Iterations without a better mean after which the run ends.
        reduce_after: Iterations without a better mean after which the learning rate is reduced.
        reduce_factor: What the learning rate is multiplied by then, in (0, 1).
        after_steps: Env steps during which nothing is counted: returns of a policy that explores go up and down.
    """

    early_stop: int | None = None
    reduce_after: int | None = None
    reduce_factor: float | None = None
    after_steps: int | None = None

    def __post_init__(self) -> None:
        """Refuses a factor without a patience, and one that does not reduce.

        Raises:
            ConfigError: If so.
        """
        if (self.reduce_after is None) != (self.reduce_factor is None):
            raise ConfigError(
                "--plateau-reduce-factor and --plateau-reduce-patience go together: the one says how much, the other "
                "after how many iterations"
            )
        if self.reduce_factor is not None and not 0.0 < self.reduce_factor < 1.0:
            raise ConfigError(f"--plateau-reduce-factor: got {self.reduce_factor}, wanted a number between 0 and 1")
        if self.after_steps is not None and self.early_stop is None and self.reduce_after is None:
            raise ConfigError(
                "--divergence-monitoring-steps says when --early-stop-patience and --plateau-reduce-patience begin to "
                "count: give one of them"
            )

    def check(self, config: Mapping[str, Any]) -> None:
        """Raises where something else decides the learning rate.

        Raises:
            ConfigError: If the config has a schedule.
        """
        if self.reduce_after is not None and config.get("lr_schedule"):
            raise ConfigError("--plateau-reduce-factor: lr_schedule decides the learning rate; give one of the two")

    def to_dict(self) -> dict[str, Any]:
        """Returns what is set, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Verdict:
    """What is to be done after a result.

    Attributes:
        is_best: Whether its mean return is the best so far.
        reduce: Whether the learning rate is to be reduced.
        reason: Why the run ends, None where it goes on.
    """

    is_best: bool
    reduce: bool
    reason: str | None


class Watch:
    """Counts the iterations since the best mean return.

    A run that goes on shows it the results before: it is then where it was.

    Args:
        patience: How long to wait.
    """

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._waited = 0
        self._waited_to_reduce = 0
        self.best = -math.inf
        self.reductions = 0

    def update(self, result: Mapping[str, Any]) -> Verdict:
        """Takes the next result, and says what follows from it."""
        mean = result.get("episode_reward_mean")
        if mean is None or not math.isfinite(mean):
            return Verdict(False, False, None)
        is_best = mean > self.best
        self.best = max(mean, self.best)
        if is_best or (result.get("timesteps_total") or 0) <= (self._patience.after_steps or 0):
            self._waited = self._waited_to_reduce = 0
            return Verdict(is_best, False, None)
        self._waited += 1
        self._waited_to_reduce += 1
        reduce = self._waited_to_reduce == self._patience.reduce_after
        if reduce:
            self._waited_to_reduce = 0
            self.reductions += 1
        return Verdict(False, reduce, self._reason())

    def _reason(self) -> str | None:
        limit = self._patience.early_stop
        if limit is None or self._waited < limit:
            return None
        return f"no better mean return than {self.best:,.2f} for {self._waited} iterations"


def reduce_learning_rate(trainer: Any, factor: float) -> float:
    """Multiplies the learning rate of every policy, on remote workers too, for the rest of the run.

    Args:
        trainer: The trainer. Its config has no `lr_schedule`.
        factor: What the configured rate is multiplied by.

    Returns:
        The new rate.
    """
    rate = float(trainer.config["lr"]) * factor

    def set_rate(policy: Any, _: str) -> None:
        from rlframe.utils.schedules import ConstantSchedule

        if hasattr(policy, "lr_schedule"):  # it would set the old rate again
            policy.cur_lr, policy.lr_schedule = rate, ConstantSchedule(rate)
        if hasattr(policy, "set_learning_rate"):  # those of workers that only sample have none
            policy.set_learning_rate(rate)

    trainer.workers.foreach_policy(set_rate)
    return rate
