"""What a user's callbacks keep in a running episode, as state that checkpoints hold."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from rlframe.data.columns import INFOS
from rlframe.data.sample_batch import SampleBatch

_KEPT = ("user_data", "custom_metrics", "hist_data")


def users_state(episode: Any) -> dict[str, Any]:
    """Returns `user_data`, `custom_metrics` and `hist_data` of an episode.

    Numbers, text, arrays, and lists and dicts of them are state. Anything else is left out: where the run goes on, it
    is what `on_episode_start` makes of it.
    """
    kept = {name: getattr(episode, name) for name in _KEPT}
    return {name: {key: value for key, value in given.items() if is_state(key, value)} for name, given in kept.items()}


def take_users_state(episode: Any, state: dict[str, Any]) -> None:
    """Puts what `users_state` returned into an episode that goes on, behind `on_episode_start`."""
    for name in _KEPT:
        getattr(episode, name).update(state.get(name, {}))


def piece_state(rows: SampleBatch) -> list[Any]:
    """Returns the columns of rows that wait for the next batch, and their infos where these are state."""
    infos = list(rows.get(INFOS, ()))
    columns = {name: column for name, column in rows.items() if name != INFOS}
    return [columns, infos if is_state("", infos) else []]


def piece_of(columns: Mapping[str, Any], infos: list[Any], wanted: Collection[str] | None) -> SampleBatch:
    """Returns the rows that `piece_state` was given; infos that were no state are empty.

    Args:
        columns: Its columns.
        infos: Its infos.
        wanted: Names of the columns that rows of this policy have; None for all.
    """
    rows = SampleBatch(dict(columns))
    if wanted is None or INFOS in wanted:
        rows[INFOS] = np.empty(rows.count, object)
        rows[INFOS][:] = infos or [{} for _ in range(rows.count)]
    return rows


def is_state(key: Any, value: Any) -> bool:
    """Returns whether a checkpoint can hold a value under a key."""
    if not isinstance(key, str):
        return False
    if type(value) is list:
        return all(is_state(key, part) for part in value)
    if type(value) is dict:
        return all(is_state(name, part) for name, part in value.items())
    if isinstance(value, np.ndarray):
        return value.dtype.kind not in "OV"
    return value is None or isinstance(value, bool | int | float | str | np.bool_ | np.number)
