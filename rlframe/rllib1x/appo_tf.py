"""What RLlib's APPO was made of in TensorFlow, for policies that are made of functions."""

from __future__ import annotations

from typing import Any

from rlframe.agents.appo.appo_policy import AsyncPPOPolicy
from rlframe.data.columns import VF_PREDS
from rlframe.policy.tf_policy import TFPolicy
from rlframe.rllib1x.ppo import POLICY_SCOPE, TARGET_POLICY_SCOPE, KLCoeffMixin, make_appo_model
from rlframe.rllib1x.vtrace_tf import setup_mixins as setup_early_mixins
from rlframe.rllib1x.vtrace_tf import stats as impala_stats


class TargetNetworkMixin(AsyncPPOPolicy):
    """What `appo_surrogate_loss` asks of a policy: V-trace's options, and a copy of the network that follows it.

    Call the constructor when the policy's model exists: in `before_loss_init` or `after_init`. A `target_model` that
    was built with the model becomes the copy.
    """

    extra_grad_info = TFPolicy.extra_grad_info  # `stats` is given as a function

    def __init__(self, obs_space: Any = None, action_space: Any = None, config: Any = None) -> None:
        self.update_target()

    def variables(self) -> list[Any]:
        """Returns the variables of the network and of its copy."""
        return [*self.model.variables(), *self.target_network.model.variables()]


def add_values(policy: Any) -> dict[str, Any]:
    """Returns V [B] of the observations that were acted on where there is no V-trace, to be stored as `vf_preds`."""
    return {} if policy.config["vtrace"] else {VF_PREDS: policy.model.value_function()}


def setup_late_mixins(policy: Any, obs_space: Any, action_space: Any, config: dict[str, Any]) -> None:
    """Starts the KL penalty, and makes the target network."""
    KLCoeffMixin.__init__(policy, config)
    TargetNetworkMixin.__init__(policy, obs_space, action_space, config)


def stats(policy: Any, train_batch: Any) -> dict[str, Any]:
    """Returns IMPALA's statistics, and the weight of the KL penalty."""
    return {**impala_stats(policy, train_batch), "KL_Coeff": policy.kl_coeff}


__all__ = [
    "POLICY_SCOPE",
    "TARGET_POLICY_SCOPE",
    "TargetNetworkMixin",
    "add_values",
    "make_appo_model",
    "setup_early_mixins",
    "setup_late_mixins",
    "stats",
]
