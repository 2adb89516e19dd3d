"""One thing that keeps a policy from learning, and which of several comes first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

PAGE = "docs/why_does_it_not_learn.md"

#: Causes before what they cause: a huge learning rate also shows as NaN, dead units and collapsed entropy.
ORDER = (
    "invalid", "unbounded_actions", "actions_without_effect", "constant_observations", "not_learning_yet", "lr_zero",
    "lr_large", "no_end", "no_episode", "horizon_cuts", "rewards_clipped", "no_reward", "large_rewards",
    "small_rewards", "large_observations", "gamma_small", "replay_ratio_low", "replay_ratio_high", "target_frozen",
    "exploring_still", "value_clip", "not_finite", "values_grow", "dead_units", "saturated_units", "values_flat",
    "entropy_collapse", "kl_large", "kl_small", "gradients_vanish", "gradients_clipped", "values_wrong", "values_lag",
    "returns_constant", "not_deterministic", "slow_env",
)  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """One thing that keeps a policy from learning.

    Attributes:
        name: Short and stable, for programs: one of `ORDER`.
        evidence: What was seen, with the number.
        change: The config key to change, or what to change in the environment.
        page: Where more is said about it.
        policy: Of which of several policies it is; None where it is of all, or of the only one.
    """

    name: str
    evidence: str
    change: str
    page: str = PAGE
    policy: str | None = None


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Returns findings with what matters most first, by `ORDER`; of two with one name and policy the first is kept."""
    first: dict[tuple[str, str | None], Finding] = {}
    for finding in findings:
        first.setdefault((finding.name, finding.policy), finding)
    return sorted(first.values(), key=lambda finding: ORDER.index(finding.name))
