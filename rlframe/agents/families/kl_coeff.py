"""A penalty on the Kullback-Leibler divergence, whose weight adapts."""

from __future__ import annotations

from typing import Any


class KLCoeffMixin:
    """A weight of the KL penalty that grows while the divergence is too large, and shrinks while it is small.

    Source: Schulman et al. 2017, section 4.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self.kl_coeff = float(config["kl_coeff"])
        self.kl_target = float(config["kl_target"])

    def update_kl(self, sampled_kl: float) -> float:
        """Takes the mean divergence of a train batch, in nats, and returns the new weight."""
        if sampled_kl > 2.0 * self.kl_target:
            self.kl_coeff *= 1.5
        elif sampled_kl < 0.5 * self.kl_target:
            self.kl_coeff *= 0.5
        return self.kl_coeff
