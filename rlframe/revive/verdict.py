"""Double validation: whether policies that were trained in learned environments may be used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rlframe.revive.policy_training import PolicyResult
from rlframe.revive.workspace import HALVES

_FEWEST_ROWS = 10  # of a half, whose rollouts would begin in the same few states otherwise


@dataclass(frozen=True)
class Verdict:
    """What double validation says.

    Attributes:
        use: Whether the policy may be used.
        reasons: Why, or why not; one sentence each.
    """

    use: bool
    reasons: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Returns what JSON can hold."""
        return {**asdict(self), "reasons": list(self.reasons)}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Verdict:
        """Reads what `to_dict` returned."""
        return cls(bool(saved["use"]), tuple(map(str, saved["reasons"])))

    def __str__(self) -> str:
        head = "This policy is better than the data in both environments." if self.use else "Do not use this policy."
        return " ".join([head, *self.reasons])


def verdict_of(result: PolicyResult) -> Verdict:
    """Returns the verdict: every policy's interval must be above the data's mean in both environments."""
    reasons = []
    if result.stopped:
        reasons.append("Training was stopped before its time.")
    for half, rows in result.rows.items():
        if rows < _FEWEST_ROWS:
            reasons.append(f"The {half} half has {rows} rows, too few to judge by; wanted {_FEWEST_ROWS} or more.")
    for policy in HALVES:
        if policy not in result.models:
            reasons.append(f"There is no policy of the {policy} half, so there is no double validation.")
        for env in HALVES:
            score, data = result.scores.get((policy, env)), result.data[env]
            if score is not None and not score.low > data:
                reasons.append(
                    f"In the {env} environment the {policy} policy scores {score.value:.4g} "
                    f"[{score.low:.4g}, {score.high:.4g}] per step, the data {data:.4g}."
                )
    if reasons:
        return Verdict(False, tuple(reasons))
    gains = [
        f"{score.value:.4g} in the {env} environment"
        for (policy, env), score in result.scores.items()
        if policy == "train"
    ]
    logged = " and ".join(f"{value:.4g}" for value in result.data.values())
    return Verdict(True, (f"It scores {' and '.join(gains)} per step, the data {logged}.",))
