"""What PG's policies of both frameworks share: columns and returns."""

from __future__ import annotations

from typing import Any

from rlframe.data.columns import ACTIONS, ADVANTAGES, DONES, ENV_ID, OBS
from rlframe.data.sample_batch import SampleBatch
from rlframe.evaluation.postprocessing import post_process_advantages
from rlframe.policy.learning_policy import LearningPolicy


class PGPolicy(LearningPolicy):
    """An actor that weights what it did by the return that followed."""

    defaults_from = "rlframe.agents.pg.pg:DEFAULT_CONFIG"

    train_columns = (DONES, ENV_ID)
    learn_columns = (OBS, ACTIONS, ADVANTAGES)

    def postprocess_trajectory(
        self, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
    ) -> SampleBatch:
        """Adds the discounted return to go as `advantages`."""
        return post_process_advantages(self, sample_batch, other_agent_batches, episode)

    postprocess_trajectory.framework_free = post_process_advantages  # type: ignore[attr-defined]  # a marker for NumPy workers
