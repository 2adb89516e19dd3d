"""What losses of users' own leave behind, where the statistics of RLlib's policies looked for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def kept_by_users_loss(policy: Any, names: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Returns the statistics that a loss for RLlib 1.x kept: on the policy, or in `model.tower_stats` since 1.5.

    Args:
        policy: The policy, of which the loss has run.
        names: By statistic, the names under which it may be; an attribute begins with `_` where the entry does not.
    """
    in_model = getattr(policy.model, "tower_stats", {})
    found: dict[str, Any] = {}
    for statistic, candidates in names.items():
        for name in candidates:
            value = getattr(policy, f"_{name}", in_model.get(name))
            if value is not None:
                found[statistic] = value
    return found
