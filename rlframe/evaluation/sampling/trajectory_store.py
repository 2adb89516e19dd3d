"""Rows of one policy while several agents sample: written as agents act, closed when their next turn comes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import (
    ACTIONS,
    AGENT_INDEX,
    DONES,
    ENV_ID,
    EPS_ID,
    INFOS,
    NEXT_OBS,
    OBS,
    REWARDS,
    TERMINATEDS,
    TRUNCATEDS,
    TURN,
    T,
)
from rlframe.data.sample_batch import SampleBatch
from rlframe.evaluation.sampling.rollout import clip_rewards

_FIRST_ROWS = 256
#: Columns with one number per row, and their dtypes.
_NUMBERS: dict[str, Any] = {
    REWARDS: np.float32,
    TERMINATEDS: np.bool_,
    TRUNCATEDS: np.bool_,
    EPS_ID: np.int64,
    T: np.int64,
    TURN: np.int64,
    AGENT_INDEX: np.int64,
    ENV_ID: np.int64,
}


class TrajectoryStore:
    """Transitions of all agents that one policy acts for.

    A row begins when an agent is given an observation to act on. Rows from `acted_up_to` on wait for their actions;
    they lie side by side, so that one call acts on all of them. A row is closed when the agent's next observation
    comes (then `next_row` is the row of that one) or when the agent is through (then `finals` has its last
    observation). Closed rows can be taken out; the others stay for the next batch.

    Args:
        obs_shape: Shape of one preprocessed observation.
        obs_dtype: Its dtype.
        wanted: Columns wanted beside those always there; None wants all.
    """

    def __init__(self, obs_shape: tuple[int, ...], obs_dtype: Any, wanted: tuple[str, ...] | None) -> None:
        self.wanted = wanted
        self.count = 0
        self.acted_up_to = 0
        self.columns: dict[str, NDArray[Any]] = {OBS: np.zeros((_FIRST_ROWS, *obs_shape), obs_dtype)}
        for name, dtype in _NUMBERS.items():
            self.columns[name] = np.zeros(_FIRST_ROWS, dtype)
        if wanted is None or INFOS in wanted:
            self.columns[INFOS] = np.empty(_FIRST_ROWS, object)
        self.next_row = np.full(_FIRST_ROWS, -1, np.int64)
        self.closed = np.zeros(_FIRST_ROWS, np.bool_)
        self.finals: dict[int, NDArray[Any]] = {}

    def __len__(self) -> int:
        return self.count

    def wants(self, name: str) -> bool:
        """Whether a column is to be in batches."""
        return self.wanted is None or name in self.wanted

    # --- while sampling -------------------------------------------------------------------------------------------

    def begin(self, obs: Any, episode_id: int, step: int, agent_index: int, env_id: int, *, turn: int) -> int:
        """Begins a row with an observation to act on, at a step of the environment; returns its number."""
        row = self.count
        if row == len(self.closed):
            self._grow()
        columns = self.columns
        columns[OBS][row] = obs
        columns[EPS_ID][row], columns[T][row], columns[TURN][row] = episode_id, step, turn
        columns[AGENT_INDEX][row], columns[ENV_ID][row] = agent_index, env_id
        if INFOS in columns:
            columns[INFOS][row] = {}
        self.count = row + 1
        return row

    def waiting(self) -> slice:
        """Returns the rows that wait for their actions."""
        return slice(self.acted_up_to, self.count)

    def act(self, actions: NDArray[Any], extras: Mapping[str, NDArray[Any]]) -> None:
        """Writes actions and further columns of the waiting rows."""
        rows = self.waiting()
        for name, values in {ACTIONS: actions, **extras}.items():
            column = self.columns.get(name)
            if column is None:
                column = self.columns[name] = np.zeros((len(self.closed), *values.shape[1:]), values.dtype)
            column[rows] = values
        self.acted_up_to = self.count

    def reward(self, row: int, reward: float) -> None:
        """Adds a reward to an open row."""
        self.columns[REWARDS][row] += reward

    def link(self, row: int, next_row: int) -> None:
        """Closes a row: its agent goes on with another one."""
        self.next_row[row] = next_row
        self.closed[row] = True

    def end(self, row: int, final_obs: NDArray[Any], *, terminated: bool, truncated: bool) -> None:
        """Closes the last row of an agent's trajectory."""
        self.finals[row] = np.array(final_obs)
        self.columns[TERMINATEDS][row], self.columns[TRUNCATEDS][row] = terminated, truncated
        self.closed[row] = True

    def forget(self, rows: list[int]) -> NDArray[np.int64]:
        """Drops rows that will never be closed; returns where the others are now, as `take` does."""
        keep = np.ones(self.count, np.bool_)
        keep[rows] = False
        return self._keep(np.flatnonzero(keep))

    def _grow(self) -> None:
        size = 2 * len(self.closed)
        for name, column in self.columns.items():
            larger = np.zeros((size, *column.shape[1:]), column.dtype)
            larger[: len(column)] = column
            self.columns[name] = larger
        self.next_row = np.concatenate([self.next_row, np.full(len(self.next_row), -1, np.int64)])
        self.closed = np.concatenate([self.closed, np.zeros_like(self.closed)])

    # --- batches --------------------------------------------------------------------------------------------------

    def take(self, rows: NDArray[np.int64], how_to_clip: bool | float | None) -> tuple[SampleBatch, NDArray[np.int64]]:
        """Returns closed rows as a batch, trajectories one after the other, and takes them out of the store.

        Args:
            rows: Numbers of the rows, all closed.
            how_to_clip: See `clip_rewards`.

        Returns:
            The batch, and where the rows that stay are now: new number by old number, -1 for those that are gone.
        """
        own = self.columns
        order = rows[np.lexsort((own[T][rows], own[AGENT_INDEX][rows], own[EPS_ID][rows]))]
        columns: dict[str, Any] = {name: own[name][order] for name in (OBS, ACTIONS)}
        columns[REWARDS] = clip_rewards(own[REWARDS][order], how_to_clip)
        special = {OBS, ACTIONS, REWARDS, ENV_ID}
        columns.update({name: column[order] for name, column in own.items() if name not in special})
        if self.wants(NEXT_OBS):
            columns[NEXT_OBS] = self._next_obs(order)
        if self.wants(DONES):
            columns[DONES] = columns[TERMINATEDS] | columns[TRUNCATEDS]
        if self.wants(ENV_ID):
            columns[ENV_ID] = own[ENV_ID][order]
        moved = self._keep(np.setdiff1d(np.arange(self.count), order, assume_unique=True))
        return SampleBatch.from_columns(columns), moved

    def not_finite(self, rows: NDArray[np.int64]) -> list[tuple[int, str]]:
        """Returns where NaN or infinity is in closed rows and the observations behind them: row, and what it is there.

        Args:
            rows: Numbers of the rows, all closed.
        """
        behind = self.next_row[rows]
        seen = np.zeros(self.count, np.bool_)
        seen[rows] = True
        seen[behind[behind >= 0]] = True
        found: list[tuple[int, str]] = []
        for name, of_rows in ((OBS, np.flatnonzero(seen)), (REWARDS, rows)):
            values = self.columns[name][of_rows]
            if values.dtype.kind != "f" or np.isfinite(values.sum()):
                continue
            what = "observation" if name == OBS else "reward"
            for place in np.argwhere(~np.isfinite(values)):
                where = [int(i) for i in place[1:]] or ""
                found.append((int(of_rows[place[0]]), f"{values[tuple(place)]} as {what}{where}"))
        for row in rows[behind < 0].tolist():
            final = self.finals[row]
            if final.dtype.kind == "f" and not np.isfinite(final).all():
                found.append((row, "NaN or infinity in the last observation"))
        return found

    def _next_obs(self, order: NDArray[np.int64]) -> NDArray[Any]:
        following = self.next_row[order]
        obs = self.columns[OBS][np.maximum(following, 0)]
        for place in np.flatnonzero(following < 0).tolist():
            obs[place] = self.finals[int(order[place])]
        return obs

    # --- checkpoints ----------------------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """Returns all rows as arrays; infos, which may be anything, are left out."""
        used = slice(0, self.count)
        return {
            "columns": {name: column[used].copy() for name, column in self.columns.items() if column.dtype != object},
            "next_row": self.next_row[used].copy(),
            "closed": self.closed[used].copy(),
            "acted_up_to": self.acted_up_to,
            "finals": {str(row): obs.copy() for row, obs in self.finals.items()},
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes what `get_state` returned; infos begin empty."""
        self.count = len(state["closed"])
        while len(self.closed) < self.count:
            self._grow()
        for name, saved in state["columns"].items():
            if name not in self.columns:
                self.columns[name] = np.zeros((len(self.closed), *saved.shape[1:]), saved.dtype)
            self.columns[name][: self.count] = saved
        if INFOS in self.columns:
            self.columns[INFOS][: self.count] = [{} for _ in range(self.count)]
        self.next_row[: self.count], self.closed[: self.count] = state["next_row"], state["closed"]
        self.acted_up_to = int(state["acted_up_to"])
        self.finals = {int(row): np.array(obs) for row, obs in state["finals"].items()}

    # --- inner ----------------------------------------------------------------------------------------------------

    def _keep(self, kept: NDArray[np.int64]) -> NDArray[np.int64]:
        """Moves rows to the front, where all there are; returns new numbers by old ones, -1 for those that are gone."""
        moved = np.full(self.count + 1, -1, np.int64)
        moved[kept] = np.arange(len(kept))
        size = len(kept)
        following = self.next_row[kept]
        for place in np.flatnonzero((following >= 0) & (moved[following] < 0)).tolist():
            last = self.columns[OBS][following[place]]
            self.finals[int(kept[place])] = last.copy()  # all that is left of what came next
        for column in self.columns.values():
            column[:size] = column[kept]
        self.columns[REWARDS][size : self.count] = 0.0
        self.columns[TERMINATEDS][size : self.count] = False
        self.columns[TRUNCATEDS][size : self.count] = False
        self.next_row[:size] = np.where(following >= 0, moved[following], -1)
        self.next_row[size : self.count] = -1
        self.closed[:size] = self.closed[kept]
        self.closed[size : self.count] = False
        self.finals = {int(moved[row]): obs for row, obs in self.finals.items() if moved[row] >= 0}
        self.acted_up_to = int((kept < self.acted_up_to).sum())
        self.count = size
        return moved
