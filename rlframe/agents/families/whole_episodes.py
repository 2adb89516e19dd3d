"""Collecting whole episodes, for algorithms that count them."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.columns import EPS_ID
from rlframe.execution.rollout_ops import ConcatBatches


class ConcatEpisodes(ConcatBatches):
    """Collects batches until they hold enough episodes and enough steps, then gives one; for `.combine()`.

    Takes and times what `ConcatBatches` does.

    Args:
        min_episodes: Episodes that the joined batch holds at least.
        min_batch_size: Env steps that it holds at least.
    """

    def __init__(self, min_episodes: int, min_batch_size: int) -> None:
        super().__init__(min_batch_size)
        self.min_episodes, self._steps_wanted = min_episodes, min_batch_size

    def __call__(self, batch: Any) -> list[Any]:
        """Returns the joined batch once there are enough of both, else nothing."""
        episodes = sum(map(_episodes, [*self.buffer, batch]))
        enough = episodes >= self.min_episodes
        self.min_batch_size = self._steps_wanted if enough else self.count + batch.count + 1
        return super().__call__(batch)


def _episodes(batch: Any) -> int:
    parts = [part[EPS_ID] for part in batch.policy_batches.values()]
    return len(np.unique(np.concatenate(parts))) if parts else 0
