"""RLlib's path to SampleBatch and MultiAgentBatch."""

from rlframe.data.sample_batch import DEFAULT_POLICY_ID, MultiAgentBatch, SampleBatch

__all__ = ["DEFAULT_POLICY_ID", "MultiAgentBatch", "SampleBatch"]
