"""Samples of whole episodes: rows wait for the end of theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rlframe.data.sample_batch import SampleBatch
from rlframe.evaluation.sampling.rollout import TrajectorySlice


class CompleteEpisodes:
    """The part of an `EnvRunner` that `batch_mode="complete_episodes"` asks for."""

    settings: Any
    slots: list[Any]
    _pending: list[list[SampleBatch]]
    _surplus: Sequence[SampleBatch] = ()
    _fill_buffer: Any  # methods of the runner
    _postprocess: Any

    def restart(self) -> None:
        """Begins fresh episodes at the next `sample()`; running ones and all rows are dropped."""
        self._surplus = ()
        super().restart()  # type: ignore[misc]  # of the loop

    def _sample_complete(self) -> SampleBatch:
        """Returns the next batch: as many whole episodes as have at least the rows of a fragment of each slot.

        Steps are taken as many as rows are missing, then more and more: few are left over for the next batch. So are
        episodes that ended beside the last one that was missing, as they do in all slots where all are equally long:
        a batch would be as many times larger as there are slots.
        """
        longest = steps = self.settings.rollout_fragment_length
        tail = 0
        wanted = longest * len(self.slots)
        earlier: list[SampleBatch] = []
        surplus = list(self._surplus)
        rows = 0
        while surplus and rows < wanted:
            earlier.append(surplus.pop(0))
            rows += earlier[-1].count
        done: list[SampleBatch] = []
        segments: list[TrajectorySlice] = []
        while rows < wanted:
            batch, parts = self._fill_buffer(steps)
            for part, piece in zip(parts, split_segments(batch, parts), strict=True):
                pieces = self._pending[part.slot]
                pieces.append(piece)
                if not part.ended:
                    continue
                whole = pieces[0] if len(pieces) == 1 else SampleBatch.concat_samples(pieces)
                self._pending[part.slot] = []
                if rows >= wanted:
                    surplus.append(self._postprocess(whole, [replace(part, start=0, stop=whole.count)]))
                    continue
                start = segments[-1].stop if segments else 0
                done.append(whole)
                segments.append(replace(part, start=start, stop=start + whole.count))
                rows += whole.count
            tail = max(-(-(wanted - rows) // len(self.slots)), 2 * tail)
            steps = min(tail, longest)
        if done:
            whole = done[0] if len(done) == 1 else SampleBatch.concat_samples(done)
            earlier.append(self._postprocess(whole, segments))
        self._surplus = surplus
        return earlier[0] if len(earlier) == 1 else SampleBatch.concat_samples(earlier)


def split_segments(batch: SampleBatch, segments: list[TrajectorySlice]) -> list[SampleBatch]:
    """Returns one batch of views per segment."""
    if len(segments) == 1:
        return [batch]
    return [batch[segment.start : segment.stop] for segment in segments]
