"""RLlib's `MultiAgentSampleBatchBuilder` for a program's own loop."""

from __future__ import annotations

from typing import Any

from rlframe.evaluation import sample_builders
from rlframe.evaluation.rollout_worker import get_global_worker


class MultiAgentSampleBatchBuilder(sample_builders.MultiAgentSampleBatchBuilder):
    """Tells callbacks of the process's worker, as programs that make one themselves give none."""

    def _told_worker(self) -> Any:
        return get_global_worker()
