"""What RLlib's SAC and DDPG were made of in both frameworks, for policies that derive from those here by functions.

Networks, optimisers and target networks are the policy's own (`networks()`, `optimizers()`, `target_networks`), so
these mixins and set-up functions have less to do than RLlib's. A policy that is built of functions alone has a
`target_model` beside its model, which `build_sac_model` makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlframe.agents.ddpg.ddpg_model import DDPGModelMethods
from rlframe.agents.families.actor_critic_networks import action_size
from rlframe.agents.families.td_errors import td_error_left
from rlframe.agents.families.users_losses import means_kept
from rlframe.agents.sac.sac_model import SACModelMethods, sac_action_dist
from rlframe.data.columns import OBS
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.parts import WHOLE_MODEL
from rlframe.rllib1x.q_learning import ComputeTDErrorMixin
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor
from rlframe.utils.errors import ConfigError


class TargetNetworkMixin(LearningPolicy):
    """Sets the target networks of a policy equal to its networks; `update_target` moves them."""

    def __init__(self, *args: Any) -> None:
        """Copies the weights; RLlib's arguments (spaces and config) are not needed.

        Raises:
            ConfigError: If the policy has no target networks.
        """
        del args
        if hasattr(self, "target_model") and not hasattr(self, "target_network"):
            make: Any = self  # the framework's policy
            make._make_target_network(WHOLE_MODEL)
        elif not getattr(self, "target_networks", ()):
            raise ConfigError(
                f"TargetNetworkMixin: got {type(self).__name__}, which has no target networks; wanted a policy derived "
                "from SAC's or DDPG's, such as SACTorchPolicy.with_updates(...)"
            )
        self.update_target(tau=1.0)

    def variables(self) -> list[Any]:
        """Returns the weights of the networks and of their copies, tensors of the framework."""
        return [*self.model.variables(), *_variables_of(self.target_model)]


def _variables_of(networks: Any) -> list[Any]:
    """Returns the tensors of networks that are a model, modules of PyTorch, or owners of TensorFlow's variables."""
    if hasattr(networks, "variables"):
        return list(networks.variables())
    named = networks.named_parameters() if hasattr(networks, "named_parameters") else networks.named_variables().items()
    return [weight for _, weight in named]


def setup_late_mixins(policy: Any, obs_space: Any, action_space: Any, config: Mapping[str, Any]) -> None:
    """Sets target networks equal to the networks, once these are there."""
    TargetNetworkMixin.__init__(policy, obs_space, action_space, config)


def validate_sac_spaces(policy: Any, observation_space: Any, action_space: Any, config: Mapping[str, Any]) -> None:
    """Checks that SAC can act in a space: a bounded vector, or choices.

    Raises:
        UnsupportedSpaceException: If it cannot.
    """
    del policy, observation_space, config
    action_size("SAC", action_space)


def validate_ddpg_spaces(policy: Any, observation_space: Any, action_space: Any, config: Mapping[str, Any]) -> None:
    """Checks that DDPG and TD3 can act in a space: a bounded vector.

    Raises:
        UnsupportedSpaceException: If they cannot.
    """
    del policy, observation_space, config
    action_size("DDPG", action_space, discrete=False)


def stats(policy: Any, train_batch: Any) -> dict[str, Any]:
    """Returns what the loss kept for the report: losses, α, mean, least and largest Q-values; scalars."""
    del train_batch
    kept = {name: value for name, value in policy._loss_outputs.items() if name != "td_error"}
    td_error = td_error_left(policy).get("td_error")
    errors = {} if td_error is None else {"td_error": td_error, "mean_td_error": ops.mean(td_error)}
    return kept or means_kept(policy, *_LEFT) | errors


#: What losses of RLlib's SAC leave in the model's `tower_stats`, or in the policy.
_LEFT = ("actor_loss", "critic_loss", "alpha_loss", "alpha_value", "log_alpha_value", "target_entropy", "policy_t")


def action_distribution_fn(
    policy: Any,
    model: Any,
    obs_batch: Any = None,
    *,
    input_dict: Any = None,
    state_batches: Any = None,
    seq_lens: Any = None,
    **kwargs: Any,
) -> tuple[Tensor, Any, list[Any]]:
    """Returns the actor's outputs `[B, ...]`, the class of their distribution, and new states.

    Args:
        policy: The policy.
        model: Its networks.
        obs_batch: Observations `[B, ...]`, or a dict with them; `input_dict` takes its place.
        input_dict: As the model takes it.
        state_batches: Recurrent states.
        seq_lens: Lengths of sequences.
        **kwargs: `explore`, `timestep`, `is_training`: without effect on what the actor gives.
    """
    del kwargs
    inputs = obs_batch if input_dict is None else input_dict
    inputs = inputs if isinstance(inputs, Mapping) else {OBS: inputs}
    outputs, state = model(inputs, state_batches or [], seq_lens)
    if isinstance(model, SACModelMethods | DDPGModelMethods) or getattr(model, "gives_features", False):
        outputs = model.get_policy_output(outputs)
    return outputs, policy.dist_class, state


__all__ = ["ComputeTDErrorMixin", "TargetNetworkMixin", "action_distribution_fn", "setup_late_mixins", "stats",
           "validate_ddpg_spaces", "validate_sac_spaces"]  # fmt: skip


def sac_tf_dist_class(*arguments: Any) -> Any:
    """Returns the class of the actions' distribution; of `(config, action_space)`, or with the policy before them."""
    config, action_space = arguments[-2:]
    return sac_action_dist(config["model"], action_space, "tf")
