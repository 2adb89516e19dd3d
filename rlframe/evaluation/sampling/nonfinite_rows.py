"""Who is to blame for a number in sampled rows that is NaN or infinite, the environment or the policy."""

from __future__ import annotations

from typing import Any

import numpy as np
import tree
from numpy.typing import NDArray

from rlframe.utils.errors import NonFiniteError

_OF_NO_BOUND = (
    ", wanted finite numbers: what its network gives has grown without bound; look at entropy and grad_gnorm of the "
    "results before, and scale observations, lower lr, set grad_clip, or restore an earlier checkpoint"
)


def blame(buffer: Any, name: str, column: NDArray[Any]) -> None:
    """Raises the error that names slot, episode and step where a column of rows is not finite.

    Args:
        buffer: The `RolloutBuffer`.
        name: "observation" or "reward".
        column: Its numbers, of which the sum is not finite; where each of them is, nothing is raised.

    Raises:
        NonFiniteError: If a number is NaN or infinite.
    """
    if name == "observation":
        column = np.stack([buffer.obs_at(t) for t in range(buffer.length + 1)])
    bad = np.argwhere(~np.isfinite(column))
    if len(bad) == 0:
        return
    t, slot, *leaf = (int(i) for i in bad[0])
    row = max(t - 1, 0) if name == "observation" else t
    where = f"{name}{leaf or ''}"
    _blame_policy(buffer, row, slot)
    raise NonFiniteError(
        f"the environment in slot {slot} gave {column[tuple(bad[0])]} as {where} in episode "
        f"{int(buffer.eps_id[row, slot]) & 0xFFFFFF} at step {int(buffer.t[row, slot])}; "
        "wanted a finite number: look at the environment's step() there"
    )


def _blame_policy(buffer: Any, row: int, slot: int) -> None:
    """Raises a NonFiniteError of its own where the environment had been given an action that is no number."""
    actions = buffer.actions
    if actions is None or actions.dtype.kind != "f" or np.isfinite(actions[row, slot]).all():
        return
    if buffer.obs.dtype.kind == "f" and not all(np.isfinite(buffer.obs_at(t)[slot]).all() for t in range(row + 1)):
        return  # which it had been asked for at an observation that was none
    raise NonFiniteError(
        f"the policy gave action {actions[row, slot]} in episode {int(buffer.eps_id[row, slot]) & 0xFFFFFF} at step "
        f"{int(buffer.t[row, slot])}{_OF_NO_BOUND}"
    )


def blame_action(action: Any, what: str, cause: Exception) -> None:
    """Raises the error that names a policy's action where its numbers are not finite.

    Args:
        action: What an environment was given, nested or not.
        what: What came of it.
        cause: What it raised.

    Raises:
        NonFiniteError: If a number is NaN or infinite; with `cause` as its cause.
    """
    for part in tree.flatten(action):
        numbers = np.asarray(part)
        if numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
            raise NonFiniteError(f"the policy gave action {action}; {what}{_OF_NO_BOUND}") from cause
