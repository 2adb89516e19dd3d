"""Whole episodes of recorded experience, put together from the batches that a reader gives."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import (
    ACTION_LOGP,
    ACTION_PROB,
    ACTIONS,
    AGENT_INDEX,
    DONES,
    ENV_ID,
    EPS_ID,
    N_STEPS,
    OBS,
    REWARDS,
    SEQ_LENS,
    TERMINATEDS,
    TRUNCATEDS,
    TURN,
    T,
)
from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.offline.preparing import logged_log_likelihood, split_trajectories
from rlframe.utils.errors import DataError

Floats = NDArray[np.float64]
#: What identifies an episode in its batches, as far as they say it.
_IDENTITY = (EPS_ID, ENV_ID, AGENT_INDEX)


@dataclass(frozen=True)
class LoggedEpisodes:
    """N whole episodes, R rows in all, one episode after the other.

    Attributes:
        obs: `[R, ...]`, as the policy takes them.
        actions: `[R, ...]`, in the policy's space.
        rewards: Float64 `[R]`.
        lengths: Rows of each episode, int64 `[N]`.
        behaviour_logp: Log-probability (density) with which each action was chosen, float64 `[R]`; None where the data
            do not say it.
        time_limit: Rows at which episodes were cut; None where none was.
        left_out: Episodes of which the data have no beginning or no end.
    """

    obs: NDArray[Any]
    actions: NDArray[Any]
    rewards: Floats
    lengths: NDArray[np.int64]
    behaviour_logp: Floats | None = None
    time_limit: int | None = None
    left_out: int = 0

    def __len__(self) -> int:
        """Returns N."""
        return len(self.lengths)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The first row of each episode, int64 `[N]`."""
        return np.cumsum(self.lengths) - self.lengths

    @cached_property
    def last(self) -> NDArray[np.bool_]:
        """Whether a row is the last of its episode, bool `[R]`."""
        made = np.zeros(len(self.rewards), bool)
        made[self.starts + self.lengths - 1] = True
        return made

    @cached_property
    def steps(self) -> NDArray[np.int64]:
        """The step of each row in its episode, from 0. Int64 `[R]`."""
        return np.arange(len(self.rewards)) - np.repeat(self.starts, self.lengths)

    @cached_property
    def owners(self) -> NDArray[np.int64]:
        """The number of each row's episode, int64 `[R]`."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def returns(self, gamma: float) -> Floats:
        """Returns each episode's discounted return, float64 `[N]`."""
        return np.add.reduceat(self.rewards * gamma**self.steps, self.starts)

    def padded(self, rows: Floats, *, hold: bool = False) -> Floats:
        """Returns numbers by row as `[N, T]`, T being the longest episode's rows.

        Args:
            rows: Float64 `[R]`.
            hold: Whether an episode's last number stands behind its end; zeros otherwise.
        """
        made = np.zeros((len(self), int(self.lengths.max())))
        made[self.owners, self.steps] = rows
        if hold:
            behind = np.arange(made.shape[1]) >= self.lengths[:, None]
            made = np.where(behind, rows[self.starts + self.lengths - 1][:, None], made)
        return made


def read_episodes(batches: Iterable[SampleBatch | MultiAgentBatch]) -> LoggedEpisodes:
    """Returns the whole episodes in batches of one policy's rows.

    An episode may lie in several batches; `eps_id` and `t` say so. Without `t` each trajectory of a batch is taken as
    begun at its first row. Episodes without beginning or end are left out. So are, where not all cut episodes are
    equally long, those that were cut: there is no limit then whose value could be meant.

    Raises:
        DataError: If columns are missing or have values that are no numbers, rows are no single steps of one policy, or
            no episode is whole.
    """
    whole, left_out = _joined(piece for batch in batches for piece in split_trajectories(_checked(batch)))
    time_limit, kept = _common_limit(whole)
    left_out += len(whole) - len(kept)
    if not kept:
        raise DataError(
            f"input: got no whole episode ({left_out} without beginning or end), wanted some; write data with "
            "batch_mode='complete_episodes', or more of them"
        )
    _check_numbers(kept)
    rows: SampleBatch = SampleBatch.concat_samples(kept)
    return LoggedEpisodes(
        np.asarray(rows[OBS]),
        np.asarray(rows[ACTIONS]),
        np.asarray(rows[REWARDS], np.float64),
        np.array([episode.count for episode in kept]),
        logged_log_likelihood(rows),
        time_limit,
        left_out,
    )


def _check_numbers(episodes: list[SampleBatch]) -> None:
    """Raises a DataError where a value is none, which a mean would hide or spread."""
    for number, episode in enumerate(episodes):
        for name in (OBS, ACTIONS, REWARDS):
            values = np.asarray(episode[name])
            odd = np.argwhere(~np.isfinite(values)) if values.dtype.kind == "f" else np.zeros((0, 1), int)
            if len(odd):
                which = f"eps_id {episode[EPS_ID][0]}" if EPS_ID in episode else f"episode {number}, counted from 0"
                raise DataError(
                    f"input: {name!r} is {values[tuple(odd[0])]} in step {odd[0][0]} of {which}; wanted numbers: mend "
                    "the row, or leave the episode out"
                )


def _checked(batch: SampleBatch | MultiAgentBatch) -> SampleBatch:
    """Returns a batch's columns that are read; raises a DataError where it is not what estimates are made of."""
    if isinstance(batch, MultiAgentBatch):
        raise DataError("input: got rows of several policies, wanted those of one")
    missing = [name for name in (OBS, ACTIONS, REWARDS) if name not in batch]
    if DONES not in batch and TERMINATEDS not in batch:
        missing.append(f"{DONES} (or {TERMINATEDS})")
    if missing:
        raise DataError(f"input: got rows with {sorted(batch)}, wanted {', '.join(missing)}, too")
    if SEQ_LENS in batch:
        raise DataError("input: got rows cut into sequences, as policies with memory write them; wanted single steps")
    if N_STEPS in batch and (np.asarray(batch[N_STEPS]) > 1).any():
        raise DataError("input: got rows with sums of several rewards, wanted single steps; write data with n_step=1")
    read = (OBS, ACTIONS, REWARDS, DONES, TERMINATEDS, TRUNCATEDS, ACTION_PROB, ACTION_LOGP, T, *_IDENTITY)
    # Of an agent of several its own steps: only these tell where one is missing.
    own = {T: batch[TURN]} if TURN in batch else {}
    return SampleBatch({name: batch[name] for name in read if name in batch} | own)


def _joined(pieces: Iterable[SampleBatch]) -> tuple[list[SampleBatch], int]:
    """Returns whole episodes, and how many are without beginning or end."""
    whole: list[SampleBatch] = []
    open_ones: dict[Hashable, list[SampleBatch]] = {}
    left_out = 0
    for piece in pieces:
        identity = tuple(int(piece[name][0]) for name in _IDENTITY if name in piece)
        before = open_ones.pop(identity, [])
        begins = T not in piece or piece[T][0] == 0
        if before and (begins or piece[T][0] != before[-1][T][-1] + 1):
            left_out, before = left_out + 1, []
        if not begins and not before:
            left_out += _ends(piece)
        elif _ends(piece):
            whole.append(SampleBatch.concat_samples([*before, piece]))
        else:
            open_ones[identity] = [*before, piece]
    return whole, left_out + len(open_ones)


def _ends(piece: SampleBatch) -> bool:
    return any(bool(piece[name][-1]) for name in (DONES, TERMINATEDS, TRUNCATEDS) if name in piece)


def _common_limit(episodes: list[SampleBatch]) -> tuple[int | None, list[SampleBatch]]:
    """Returns the rows at which episodes were cut, None for no limit; and the episodes that it leaves.

    Rows that only say `dones` do not tell cuts from ends: several episodes as long as the longest were cut.
    """
    counts = [episode.count for episode in episodes]
    longest = max(counts, default=0)
    if any(TERMINATEDS not in episode for episode in episodes):
        return (longest if counts.count(longest) > 1 else None), episodes
    cut = [not bool(episode[TERMINATEDS][-1]) for episode in episodes]
    if not any(cut):
        return None, episodes
    if all(count == longest for count, was_cut in zip(counts, cut, strict=True) if was_cut):
        return longest, episodes
    return None, [episode for episode, was_cut in zip(episodes, cut, strict=True) if not was_cut]


__all__ = ["LoggedEpisodes", "read_episodes"]
