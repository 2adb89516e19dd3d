"""What RLlib's PPO was made of, for policies that are made of functions."""

from __future__ import annotations

from typing import Any

from rlframe.policy.coefficients import adapted_kl_coeff
from rlframe.policy.value_network import ValueNetworkMixin
from rlframe.rllib1x.schedules import EntropyCoeffSchedule, LearningRateSchedule


class KLCoeffMixin:
    """Gives a policy a weight of the KL penalty that adapts; the built-in ones have `AdaptiveKL`.

    Source: Schulman et al. 2017, section 4.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self.kl_coeff = float(config["kl_coeff"])
        self.kl_target = float(config["kl_target"])

    def update_kl(self, sampled_kl: float) -> float:
        """Takes the mean divergence of a train batch, in nats, and returns the new weight."""
        self.kl_coeff = adapted_kl_coeff(self.kl_coeff, self.kl_target, sampled_kl)
        return self.kl_coeff


def setup_mixins(policy: Any, obs_space: Any, action_space: Any, config: dict[str, Any]) -> None:
    """Starts the KL penalty and the schedules of a policy with PPO's mixins; RLlib's `before_loss_init` of PPO."""
    ValueNetworkMixin.__init__(policy, obs_space, action_space, config)
    KLCoeffMixin.__init__(policy, config)
    EntropyCoeffSchedule.__init__(policy, config["entropy_coeff"], config["entropy_coeff_schedule"])
    LearningRateSchedule.__init__(policy, config["lr"], config["lr_schedule"])
