"""What the actor-critic policies of both frameworks share: columns, advantages, schedules."""

from __future__ import annotations

from typing import Any

from rlframe.data.columns import ACTIONS, ADVANTAGES, DONES, ENV_ID, NEXT_OBS, OBS, VALUE_TARGETS
from rlframe.data.sample_batch import SampleBatch
from rlframe.evaluation.postprocessing import compute_gae_for_sample_batch
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.row_sums import RowSums
from rlframe.policy.schedules import EntropyCoeffSchedule, LearningRateSchedule
from rlframe.policy.value_network import ValueNetworkMixin


class A3CPolicy(ValueNetworkMixin, RowSums, LearningRateSchedule, EntropyCoeffSchedule, LearningPolicy):
    """An actor with a critic, trained on advantages."""

    defaults_from = "rlframe.agents.a3c.a3c:DEFAULT_CONFIG"

    wants_values = True
    train_columns = (NEXT_OBS, DONES, ENV_ID)
    learn_columns = (OBS, ACTIONS, ADVANTAGES, VALUE_TARGETS)

    def setup_mixins(self, config: dict[str, Any]) -> None:
        """Starts the schedules."""
        # IMPALA's grad_clip, which these are the policies of without V-trace, is for sums.
        self.setup_rows(config, sums="vtrace" in config)
        EntropyCoeffSchedule.__init__(self, config["entropy_coeff"], config["entropy_coeff_schedule"])
        LearningRateSchedule.__init__(self, config["lr"], config["lr_schedule"])

    def postprocess_trajectory(
        self, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
    ) -> SampleBatch:
        """Adds `advantages` and `value_targets`."""
        return compute_gae_for_sample_batch(self, sample_batch, other_agent_batches, episode)

    postprocess_trajectory.framework_free = compute_gae_for_sample_batch  # type: ignore[attr-defined]  # a marker for NumPy workers
