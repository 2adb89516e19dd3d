"""A2C and A3C: the loss and the policy, for both frameworks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlframe.agents.families.users_losses import called_as_in_rllib, kept_by_users_loss
from rlframe.data.columns import ACTIONS, ADVANTAGES, DONES, ENV_ID, NEXT_OBS, OBS, VALUE_TARGETS
from rlframe.data.sample_batch import SampleBatch
from rlframe.evaluation.postprocessing import compute_gae_for_sample_batch
from rlframe.losses.masking import valid_mean, valid_rows
from rlframe.losses.policy_gradients import explained_variance, policy_gradient
from rlframe.policy.backends import lazy_policies
from rlframe.policy.coefficients import schedules_of
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.parts import WHOLE_MODEL, AdamSpec, Component, LossOutput
from rlframe.policy.popart import LayerPopArt, value_std
from rlframe.policy.value_network import value_of_step
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor
from rlframe.utils.errors import ConfigError

if TYPE_CHECKING:
    from rlframe.agents.a3c.a3c import A3CConfig


def a2c_loss(policy: Any, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
    """Returns the loss of one batch, a scalar, and its statistics.

        mean[ −log π(a|s) A + c_v ½ (V − R)² / σ² − c_e H(π) ]

    σ is the deviation that values are normalised by, see `LayerPopArt`; 1 without `normalize_values`. RLlib summed over
    the rows; with a mean, the length of a step does not depend on the size of the batch. Padding rows of recurrent
    batches do not count.

    Source: Mnih et al. 2016, "Asynchronous Methods for Deep Reinforcement Learning", section 4.
    """
    dist_inputs, _ = model(train_batch)
    dist, targets = dist_class(dist_inputs, model), train_batch[VALUE_TARGETS]
    mean, valid = valid_mean(train_batch), valid_rows(train_batch)
    policy_loss = mean(policy_gradient(dist.logp(train_batch[ACTIONS]), train_batch[ADVANTAGES]))
    values = model.value_function()
    if policy.config.use_critic:
        vf_loss = 0.5 * mean(ops.square(values - targets)) / value_std(policy) ** 2
    else:
        vf_loss = ops.zeros_like(policy_loss)
    entropy = mean(dist.entropy())
    total = policy_loss + policy.config.vf_loss_coeff * vf_loss - policy.entropy_coeff * entropy
    stats = {
        "policy_loss": policy_loss,
        "vf_loss": vf_loss,
        "policy_entropy": entropy,
        "vf_explained_var": explained_variance(valid(targets), valid(ops.stop_gradient(values))),
    }
    return LossOutput(total, stats)


def actor_critic_loss(policy: Any, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor:
    """Returns the loss of one batch, a scalar; the policy keeps the rest. See `a2c_loss`."""
    return called_as_in_rllib(a2c_loss, (policy, model, dist_class, train_batch), _KEPT)


_KEPT = {"policy_entropy": ("entropy",), "policy_loss": ("pi_loss", "pi_err"), "vf_loss": ("vf_loss", "value_err")}
"""By statistic, the names under which losses for RLlib 1.x kept it."""


class A3CPolicy(LearningPolicy):
    """An actor with a critic, trained on advantages."""

    config: A3CConfig
    defaults_from = "rlframe.agents.a3c.a3c:DEFAULT_CONFIG"

    wants_values = True
    kept_names = _KEPT
    train_columns = (NEXT_OBS, DONES, ENV_ID)
    learn_columns = (OBS, ACTIONS, ADVANTAGES, VALUE_TARGETS)

    cur_lr: float
    entropy_coeff: float
    _value = value_of_step
    postprocess_trajectory = compute_gae_for_sample_batch

    def prepare(self) -> None:
        """Makes the schedules and PopArt, which A2C alone has a key for."""
        self.popart = LayerPopArt(self, normalizes=self._normalizes_values())
        self.components.update(popart=self.popart, **schedules_of(self, self.config))

    def _normalizes_values(self) -> bool:
        """Returns `normalize_values`; what a policy's own config says, the trainer has not looked at."""
        config = self.config
        if not config.get("normalize_values"):
            return False
        whole_batches = "microbatch_size" in config and not config["microbatch_size"]  # a key of A2C's alone
        if not (whole_batches and config["use_critic"]):
            raise ConfigError(
                "normalize_values=True in a policy's own config: got an algorithm that never moves the moments; wanted "
                "A2C with use_critic=True and without microbatch_size. Leave the key out"
            )
        return True

    def model_options(self) -> dict[str, Any]:
        """Returns the `model` section of the config, with PopArt's layer where values are normalised."""
        return self.popart.model_options(super().model_options())

    def make_components(self) -> dict[str, Component]:
        """Checks that the model's values are normalised where the config says so."""
        self.popart.check_model()
        return super().make_components()

    def optimizers(self) -> Mapping[str, AdamSpec]:
        """Returns Adam with `lr`, clipped to `grad_clip`; IMPALA's, without V-trace, is for sums over the rows."""
        config = self.config
        sums = "vtrace" in config
        return {"loss": AdamSpec(WHOLE_MODEL, config.lr, grad_clip=config.grad_clip, limits_for_sums=sums)}

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
        """Returns the loss of one batch; see `a2c_loss`."""
        return a2c_loss(self, model, dist_class, train_batch)

    def extra_grad_info(self, train_batch: SampleBatch) -> dict[str, Any]:
        """Returns losses, entropy and explained variance, all means over the rows, and the norm of the weights."""
        kept = {**kept_by_users_loss(self, _KEPT), **self._loss_outputs}
        return {"cur_lr": self.cur_lr, "entropy_coeff": self.entropy_coeff, **kept, "var_gnorm": self.weights_norm()}


__getattr__ = lazy_policies(__name__, A3CPolicy, A3CTorchPolicy="torch", A3CTFPolicy="tf")
