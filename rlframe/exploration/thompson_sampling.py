"""The action that is best for weights drawn from their posterior, of bandits whose models draw them."""

from __future__ import annotations

from rlframe.exploration.upper_confidence_bound import UpperConfidenceBound


class ThompsonSampling(UpperConfidenceBound):
    """Takes the action of the largest score that the policy's model gives while it explores: by weights that are drawn.

    Source: Agrawal and Goyal 2013, "Thompson sampling for contextual bandits with linear payoffs", algorithm 1.
    """
