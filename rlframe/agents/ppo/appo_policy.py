"""What APPO's policies of both frameworks share: columns, postprocessing, the target policy's state."""

from __future__ import annotations

from typing import Any

from rlframe.agents.impala.vtrace_policy import VTracePolicy
from rlframe.agents.impala.vtrace_postprocessing import postprocess_for_vtrace
from rlframe.agents.ppo.ppo_policy import KLCoeffMixin
from rlframe.data.columns import (
    ACTION_DIST_INPUTS,
    ACTION_LOGP,
    ACTIONS,
    ADVANTAGES,
    DONES,
    ENV_ID,
    NEXT_OBS,
    OBS,
    VALUE_TARGETS,
)
from rlframe.data.sample_batch import SampleBatch
from rlframe.evaluation.postprocessing import compute_gae_for_sample_batch
from rlframe.policy.policy import State
from rlframe.policy.target_policy import TargetPolicy

#: Largest weight μ/π_old of a row whose behaviour policy and target policy differ.
MAX_WEIGHT = 2.0


def postprocess_for_appo(
    policy: Any, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
) -> SampleBatch:
    """Adds what V-trace needs, or `advantages` and `value_targets` where it is switched off."""
    postprocess = postprocess_for_vtrace if policy.config["vtrace"] else compute_gae_for_sample_batch
    return postprocess(policy, sample_batch, other_agent_batches, episode)


postprocess_for_appo.handles_many = True  # type: ignore[attr-defined]  # one call for several trajectories
postprocess_for_appo.framework_free = True  # type: ignore[attr-defined]  # NumPy workers may run it


class AsyncPPOPolicy(KLCoeffMixin, TargetPolicy, VTracePolicy):
    """An actor with a critic, trained on a clipped surrogate against a policy of a few batches ago."""

    defaults_from = "rlframe.agents.ppo.appo:DEFAULT_CONFIG"
    limits_are_for_sums = False  # RLlib's losses were means here

    def setup_mixins(self, config: dict[str, Any]) -> None:
        """Starts the KL penalty and the schedules; without V-trace, other columns are collected and learned from."""
        KLCoeffMixin.__init__(self, config)
        super().setup_mixins(config)
        if config["vtrace"]:
            return
        if self.train_columns is not None:
            self.train_columns = (ACTION_DIST_INPUTS, ACTION_LOGP, NEXT_OBS, DONES, ENV_ID)
        if self.learn_columns is not None:
            self.learn_columns = (OBS, ACTIONS, ACTION_DIST_INPUTS, ACTION_LOGP, ADVANTAGES, VALUE_TARGETS)

    def postprocess_trajectory(
        self, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
    ) -> SampleBatch:
        """Adds what V-trace needs, or advantages where it is switched off."""
        return postprocess_for_appo(self, sample_batch, other_agent_batches, episode)

    postprocess_trajectory.framework_free = postprocess_for_appo  # type: ignore[attr-defined]  # a marker for NumPy workers

    def get_state(self) -> State:
        """Returns the policy's state with the target policy's weights and the KL penalty's weight."""
        return {**super().get_state(), "kl_coeff": self.kl_coeff}

    def set_state(self, state: State) -> None:
        """Takes what `get_state` returned; a state without target weights copies the online ones."""
        super().set_state(state)
        self.kl_coeff = float(state.get("kl_coeff", self.kl_coeff))
