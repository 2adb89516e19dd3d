"""Keeps the episodes of several files apart: many programs count them from 0 in each file that they write."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rlframe.data.column_dict import trajectory_ends
from rlframe.data.columns import AGENT_INDEX, EPS_ID, TURN, T
from rlframe.data.sample_batch import SampleBatch


@dataclass
class _Episode:
    """An episode that was seen.

    Attributes:
        file: Number of the file that its last rows are in.
        number: Its `eps_id` among all files.
        last: For each of its agents `t` of the last row, None where rows have none.
    """

    file: int
    number: int
    last: dict[int, int | None] = field(default_factory=dict)


class EpisodeIds:
    """Gives every episode of a dataset an `eps_id` of its own.

    An id that no other file has stays as it is. An episode goes on in another file where its `t` does, as it does where
    a writer begins a new file in the middle; else the rows there are those of another episode.
    """

    def __init__(self) -> None:
        self._known: dict[int, _Episode] = {}
        self._used: set[int] = set()
        self._next = 0  # above all that are used

    def unique(self, file: int, batch: SampleBatch) -> SampleBatch:
        """Returns rows with ids that are theirs alone; the same batch where nothing is to be changed.

        Args:
            file: Number of the file that they are in.
            batch: Rows of one policy, in the order in which the file has them.
        """
        if EPS_ID not in batch or not batch.count:
            return batch
        given = np.asarray(batch[EPS_ID])
        made = given.astype(np.int64)
        stops = (np.flatnonzero(trajectory_ends(batch)) + 1).tolist()
        for start, stop in zip([0, *stops[:-1]], stops, strict=True):
            made[start:stop] = self._number(file, batch, start, stop - 1)
        return batch if (made == given).all() else batch._like({**batch, EPS_ID: made})

    def _number(self, file: int, batch: SampleBatch, first: int, last: int) -> int:
        raw = int(batch[EPS_ID][first])
        agent = int(batch[AGENT_INDEX][first]) if AGENT_INDEX in batch else 0
        steps = batch.get(TURN, batch.get(T))
        begins, ends = (None if steps is None else int(steps[row]) for row in (first, last))
        before = self._known.get(raw)
        if before is None or not _goes_on(before, file, agent, begins):
            before = self._known[raw] = _Episode(file, self._fresh(raw))
        before.file, before.last[agent] = file, ends
        return before.number

    def _fresh(self, raw: int) -> int:
        number = raw if raw not in self._used else self._next
        self._used.add(number)
        self._next = max(self._next, number + 1)
        return number


def _goes_on(episode: _Episode, file: int, agent: int, begins: int | None) -> bool:
    """Returns whether rows with an episode's id, of which the first has `t` = `begins`, are rows of that episode."""
    step = episode.last.get(agent)
    return episode.file == file or (begins is not None and step is not None and begins == step + 1)


__all__ = ["EpisodeIds"]
