"""Columns `[T, B, ...]` while sampling, and the rows that are made of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
    T,
)
from rlframe.data.sample_batch import SampleBatch


@dataclass(frozen=True)
class TrajectorySlice:
    """Rows `start:stop` of a batch that are one trajectory of one slot; `ended` if its episode ended there.

    `episode` is the `Episode` it belongs to where callbacks asked for one; `made` its rows if postprocessed already.
    """

    slot: int
    start: int
    stop: int
    ended: bool
    episode: Any = None
    made: SampleBatch | None = None


class RolloutBuffer:
    """T steps of B slots, written row by row into arrays that the batch then consists of views of.

    Observations lie as the batch has them, slot after slot, and behind them what followed each slot's last row: images
    are large, and another order would copy each of them once more. `obs_at(t)` is a step of them.

    Attributes:
        obs: [B·T + B, ...]: row `slot · T + t`, then the B observations after the last step.
        actions: [T, B, ...] in the policy's space.
        rewards: [T, B] float32, raw.
        terminateds, truncateds: [T, B] bool.
        skipped: [T, B] bool, rows of no trajectory.
        extras: `{name: [T, B, ...]}`, whatever came with the actions.
        finals: `(t, slot, observation)` where an episode ended: what the batch's `new_obs` has there.
        segments: Trajectories within the buffer, by slot.
    """

    def __init__(self, length: int, first_obs: NDArray[Any], policy: Any, empty: Callable[..., Any] = np.empty) -> None:
        slots = len(first_obs)
        self.length, self.slots, self._empty = length, slots, empty
        self.make_obs(first_obs)
        self.obs_at(0)[:] = first_obs
        self.rewards = np.empty((length, slots), np.float32)
        self.reward_list = [0.0] * slots
        self.terminateds = np.zeros((length, slots), np.bool_)
        self.truncateds = np.zeros((length, slots), np.bool_)
        self.skipped = np.zeros((length, slots), np.bool_)
        self.eps_id = np.empty((length, slots), np.int64)
        self.t = np.empty((length, slots), np.int64)
        self.actions: NDArray[Any] | None = None
        self.extras: dict[str, NDArray[Any]] = {}
        self.finals: list[tuple[int, int, NDArray[Any]]] = []
        self.segments: list[TrajectorySlice] = []
        self._open = [0] * slots
        wanted = policy.train_columns
        self.infos = np.empty((length, slots), object) if wanted is None or INFOS in wanted else None

    def make_obs(self, like: NDArray[Any]) -> None:
        """Makes room for observations such as `like` [B, ...]."""
        rows, shape = self.length * self.slots, like.shape[1:]
        self.obs: NDArray[Any] = self._empty((rows + self.slots, *shape), like.dtype)
        self._steps = self.obs[:rows].reshape(self.slots, self.length, *shape)

    def obs_at(self, t: int) -> NDArray[Any]:
        """Returns the observations [B, ...] of step t, a view; t = T is what came after the last step."""
        return self._steps[:, t] if t < self.length else self.obs[self.length * self.slots :]

    def write_actions(self, t: int, actions: NDArray[Any], extras: dict[str, NDArray[Any]]) -> None:
        """Stores the actions and extra columns of row t."""
        if self.actions is None:
            self.actions = np.empty((self.length, *actions.shape), actions.dtype)
            self.extras = {key: np.empty((self.length, *column.shape), column.dtype) for key, column in extras.items()}
        self.actions[t] = actions
        for key, column in extras.items():
            self.extras[key][t] = column

    def info_row(self, t: int) -> NDArray[Any] | None:
        """Returns where the infos of row t go, None if nobody wants them."""
        return None if self.infos is None else self.infos[t]

    def write_end(self, t: int, slot: int, terminated: bool, truncated: bool) -> None:
        """Stores that an episode ended with row t."""
        self.terminateds[t, slot] = terminated
        self.truncateds[t, slot] = truncated

    def keep_final(self, t: int, slot: int) -> None:
        """Keeps the last observation of an episode before the next one's first takes its row."""
        self.finals.append((t, slot, self.obs_at(t + 1)[slot].copy()))

    def skip_row(self, t: int, slot: int) -> None:
        """Says that row t of a slot is of no trajectory: the next one begins behind it."""
        self.skipped[t, slot], self._open[slot] = True, t + 1

    def close_segment(
        self, slot: int, part_id: int, episode_length: int, episode: Any = None, *, stop: int | None = None
    ) -> None:
        """Marks rows since the slot's last segment as one trajectory of an episode now `episode_length` steps long.

        `stop` is the row after its last where the episode ended; None where it goes on after the buffer.
        """
        ended = stop is not None
        start, stop = self._open[slot], self.length if stop is None else stop
        if stop == start:
            return
        self._open[slot] = stop
        self.eps_id[start:stop, slot] = part_id
        self.t[start:stop, slot] = range(episode_length - (stop - start), episode_length)
        base = slot * self.length
        self.segments.append(TrajectorySlice(slot, base + start, base + stop, ended, episode))


def _rows(column: NDArray[Any]) -> NDArray[Any]:
    """Returns [T, B, ...] as [B·T, ...], slot after slot; a view for one slot."""
    if column.shape[1] == 1:
        return column[:, 0]
    swapped: NDArray[Any] = column.swapaxes(0, 1)
    return swapped.reshape(column.shape[0] * column.shape[1], *column.shape[2:])


def clip_rewards(rewards: NDArray[np.float32], how: bool | float | None) -> NDArray[np.float32]:
    """Returns rewards as `clip_rewards` says: True their sign, a number x clips to ±x."""
    if how is None or how is False:
        return rewards
    if how is True:
        return np.sign(rewards)
    return np.clip(rewards, -float(how), float(how))


def assemble(buffer: RolloutBuffer, policy: Any, settings: Any) -> SampleBatch:
    """Returns the buffer as a batch, trajectories one after the other, segments sorted alike.

    Raises:
        NonFiniteError: If a reward or observation is NaN or infinite; names slot, episode and step.
    """
    _check_finite(buffer)
    assert buffer.actions is not None
    wanted = policy.train_columns
    terminateds, truncateds = _rows(buffer.terminateds), _rows(buffer.truncateds)
    columns: dict[str, Any] = {
        OBS: buffer.obs[: buffer.length * buffer.slots],
        ACTIONS: _rows(buffer.actions),
        REWARDS: clip_rewards(_rows(buffer.rewards), settings.clip_rewards),
        TERMINATEDS: terminateds,
        TRUNCATEDS: truncateds,
        EPS_ID: _rows(buffer.eps_id),
        T: _rows(buffer.t),
    }
    if wanted is None or NEXT_OBS in wanted:
        columns[NEXT_OBS] = _next_obs(buffer)
    if wanted is None or DONES in wanted:
        columns[DONES] = terminateds | truncateds
    for key, column in buffer.extras.items():
        columns[key] = _rows(column)
    if wanted is None or ENV_ID in wanted:
        columns[ENV_ID] = np.repeat(np.arange(buffer.slots), buffer.length)
    if wanted is None:
        count = buffer.length * buffer.slots
        columns[AGENT_INDEX] = np.zeros(count, np.int64)
    if buffer.infos is not None:
        columns[INFOS] = _rows(buffer.infos)
    if buffer.slots > 1:
        buffer.segments.sort(key=lambda segment: segment.start)
    return SampleBatch.from_columns(columns)


def _next_obs(buffer: RolloutBuffer) -> NDArray[Any]:
    if buffer.slots == 1 and not buffer.finals:
        return buffer.obs[1:]
    # Each row's successor is the next row, but for the slots' last ones: theirs lie behind all rows.
    rows = buffer.obs[1 : buffer.length * buffer.slots + 1].copy()
    rows[buffer.length - 1 :: buffer.length] = buffer.obs_at(buffer.length)
    for t, slot, obs in buffer.finals:
        rows[slot * buffer.length + t] = obs
    return rows


def _check_finite(buffer: RolloutBuffer) -> None:
    for name, column in (("observation", buffer.obs), ("reward", buffer.rewards)):
        # A sum is NaN or infinite when any element is; the exact place is only looked for then.
        if column.dtype.kind != "f" or np.isfinite(column.sum()):
            continue
        from rlframe.evaluation.sampling.nonfinite_rows import blame

        blame(buffer, name, column)
