"""Values normalised by PopArt: the key of algorithms that start without, and what moves its moments in plans."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rlframe.agents.families.actor_critic import AdvantageConfig
from rlframe.config.options import option
from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.execution.train_ops import policy_parts

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet


class ValueNormalizationConfig(AdvantageConfig):
    """Values may be normalised."""

    normalize_values: bool = option(
        False,
        "PopArt: values are learned normalised by the running mean and standard deviation of their targets; vf_loss is "
        "in units of that deviation then.",
        source="van Hasselt et al. 2016, section 2",
    )

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        if self.normalize_values and not self.use_critic:
            yield "normalize_values=True needs use_critic=True: there are no values to normalise"


class UpdateValueNormalizer:
    """Updates PopArt's moments from the value targets of every policy that will learn; batch in and out."""

    def __init__(self, workers: WorkerSet) -> None:
        self.workers, self._local = workers, workers.local_worker()

    def __call__(self, batch: SampleBatch | MultiAgentBatch) -> SampleBatch | MultiAgentBatch:
        """Hands each policy its rows."""
        local = self._local
        for policy_id, rows in policy_parts(local, batch):
            policy: Any = local.policy_map[policy_id]
            if hasattr(policy, "update_value_normalizer"):  # one of the user's own may lack it
                policy.update_value_normalizer(rows)
        return batch
