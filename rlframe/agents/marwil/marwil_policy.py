"""MARWIL and behaviour cloning: the loss and the policy, for both frameworks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rlframe.agents.families.users_losses import called_as_in_rllib, kept_by_users_loss
from rlframe.data.columns import ACTIONS, ADVANTAGES, DONES, ENV_ID, NEXT_OBS, OBS
from rlframe.data.sample_batch import SampleBatch
from rlframe.evaluation.postprocessing import gae_of_batch, values_of_next
from rlframe.losses.masking import valid_mean, valid_rows
from rlframe.losses.offline import weighted_imitation
from rlframe.losses.policy_gradients import explained_variance
from rlframe.policy.backends import lazy_policies
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.parts import WHOLE_MODEL, AdamSpec, Component, LossOutput
from rlframe.policy.value_network import value_of_step
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor
from rlframe.utils.errors import DataError
from rlframe.utils.framework import get_variable

if TYPE_CHECKING:
    from rlframe.agents.marwil.marwil import MARWILConfig


def postprocess_returns(
    policy: Any, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
) -> SampleBatch:
    """Adds the discounted return to go as `advantages`, from which the loss takes V.

    Where a trajectory was truncated or cut off, V(`new_obs`) stands for what followed; 0 without `use_gae`. With
    `beta` 0 nothing is added.

    Args:
        policy: Its config is read for `gamma`, `beta` and `use_gae`.
        sample_batch: Any number of trajectories one after the other.
        other_agent_batches: Not used; part of the signature of postprocessing functions.
        episode: Not used; part of the signature of postprocessing functions.
    """
    del other_agent_batches, episode
    config = policy.config
    if config["beta"] == 0.0:
        return sample_batch

    def following(ends: NDArray[np.bool_], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        if len(rows) and config["use_gae"]:
            if NEXT_OBS not in sample_batch:
                raise DataError(
                    f"got a trajectory that is cut off, of rows with {sorted(sample_batch)}; wanted {NEXT_OBS!r}, too, "
                    "by which what follows is valued: set use_gae=False for data without it"
                )
            return values_of_next(policy, sample_batch, ends, rows)
        return np.zeros(len(rows), np.float32)

    zeros = np.zeros(sample_batch.count, np.float32)
    sample_batch[ADVANTAGES] = gae_of_batch(sample_batch, zeros, following, config["gamma"], 1.0)[0]
    return sample_batch


postprocess_returns.handles_many = True  # type: ignore[attr-defined]  # one call for several trajectories
postprocess_returns.framework_free = True  # type: ignore[attr-defined]  # NumPy workers may run it


def imitation_loss(policy: Any, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
    """Returns the loss of one batch, a scalar, with its statistics.

        A = R − V(s)
        mean[ −exp(β A / c) log π(a|s) + c_v ½ A² ],   c² the moving average of A²

    With β = 0 the first term alone is left, −log π(a|s): behaviour cloning.

    Source: Wang et al. 2018, "Exponentially Weighted Imitation Learning for Batched Historical Data", algorithm 1.
    """
    config = policy.config
    dist_inputs, _ = model(train_batch)
    logp = dist_class(dist_inputs, model).logp(train_batch[ACTIONS])
    mean = valid_mean(train_batch)
    if config.beta == 0.0:
        loss = mean(weighted_imitation(logp, ops.zeros_like(logp), 1.0, 0.0))
        return LossOutput(loss, {"policy_loss": loss, "total_loss": loss})
    returns, values, valid = train_batch[ADVANTAGES], model.value_function(), valid_rows(train_batch)
    advantages = returns - values
    squared = mean(ops.square(advantages))
    scale = 1e-8 + ops.sqrt(ops.tensor_like(policy.squared_advantage, squared))
    policy_loss = mean(weighted_imitation(logp, ops.stop_gradient(advantages), scale, config.beta))
    vf_loss = 0.5 * squared
    total = policy_loss + config.vf_coeff * vf_loss
    stats = {
        "policy_loss": policy_loss,
        "total_loss": total,
        "vf_loss": vf_loss,
        "vf_explained_var": explained_variance(valid(returns), valid(ops.stop_gradient(values))),
    }
    return LossOutput(total, stats)


def marwil_loss(policy: Any, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor:
    """Returns the loss of one batch, a scalar; the policy keeps the rest. See `imitation_loss`."""
    return called_as_in_rllib(imitation_loss, (policy, model, dist_class, train_batch), _KEPT, prefix="")


_KEPT = {
    "policy_loss": ("p_loss",),
    "total_loss": ("total_loss",),
    "vf_loss": ("v_loss",),
    "vf_explained_var": ("explained_variance",),
}
"""By statistic, the names under which losses for RLlib 1.x kept it; see `kept_by_users_loss`."""


class AdvantageScale(Component):
    """The moving average of squared advantages, by which a policy measures them; it has it as `squared_advantage`.

    A batch is measured with the average of those before it.

    Args:
        policy: The policy.
        start: The average at the start, in squared discounted reward units.
        rate: Share of a batch's mean in the new average.
    """

    def __init__(self, policy: Any, start: float, rate: float) -> None:
        self._policy, self._rate = policy, float(rate)
        policy.squared_advantage = float(start)

    def after_learning(self, samples: SampleBatch, stats: Mapping[str, Any]) -> None:
        """Moves the average towards the mean of a batch."""
        if "vf_loss" in stats:
            before = self._policy.squared_advantage
            self._policy.squared_advantage = before + self._rate * (2.0 * float(stats["vf_loss"]) - before)

    def get_state(self) -> dict[str, Any]:
        """Returns the average."""
        return {"squared_advantage": self._policy.squared_advantage}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes what `get_state` returned."""
        self._policy.squared_advantage = float(state["squared_advantage"])


class OwnAdvantageScale(Component):
    """The average of a loss that is a copy of RLlib's, which moves it itself: `_moving_average_sqd_adv_norm`.

    Args:
        policy: The policy; it gets a tensor `[1]` in PyTorch, a variable in TensorFlow.
        start: The average at the start, in squared discounted reward units.
    """

    def __init__(self, policy: Any, start: float) -> None:
        self._policy = policy
        value = np.float32(start) if policy.framework == "tf" else np.array([start], np.float32)
        device = getattr(policy, "device", None)
        policy._moving_average_sqd_adv_norm = get_variable(value, policy.framework, torch_tensor=True, device=device)

    def get_state(self) -> dict[str, Any]:
        """Returns the average."""
        return {"average": np.array(self._policy.to_numpy(self._policy._moving_average_sqd_adv_norm))}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes what `get_state` returned."""
        average = self._policy._moving_average_sqd_adv_norm
        if hasattr(average, "assign"):
            average.assign(state["average"])
        else:
            self._policy._moving_average_sqd_adv_norm = self._policy.to_tensors(np.array(state["average"]))


class MARWILPolicy(LearningPolicy):
    """An actor that imitates what is in the data, with a critic that says how well it came out."""

    config: MARWILConfig
    defaults_from = "rlframe.agents.marwil.marwil:DEFAULT_CONFIG"

    learns_values = True
    train_columns = (NEXT_OBS, DONES, ENV_ID)
    learn_columns: tuple[str, ...] = (OBS, ACTIONS, ADVANTAGES)

    squared_advantage: float
    learn_scalars = ("squared_advantage",)
    _value = value_of_step
    postprocess_trajectory = postprocess_returns

    def prepare(self) -> None:
        """Starts the average; a policy that clones behaviour reads no advantages."""
        config = self.config
        start, rate = config.moving_average_sqd_adv_norm_start, config.moving_average_sqd_adv_norm_update_rate
        self.components["advantages"] = AdvantageScale(self, start, rate)
        if not self.learn_columns:
            self.components["own_advantages"] = OwnAdvantageScale(self, start)
        if config.beta == 0.0 and self.learn_columns:  # none are named for a user's own loss
            self.learn_columns = tuple(name for name in self.learn_columns if name != ADVANTAGES)

    def optimizers(self) -> Mapping[str, AdamSpec]:
        """Returns Adam with `lr`, clipped to `grad_clip`."""
        return {"loss": AdamSpec(WHOLE_MODEL, self.config.lr, grad_clip=self.config.grad_clip)}

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
        """Returns the loss of one batch; see `imitation_loss`."""
        return imitation_loss(self, model, dist_class, train_batch)

    def extra_grad_info(self, train_batch: SampleBatch) -> dict[str, Any]:
        """Returns the losses, all means over the rows, and the moving average of squared advantages."""
        outputs: dict[str, Any] = dict(self._loss_outputs or kept_by_users_loss(self, _KEPT))
        if self.config.beta == 0.0:
            return outputs
        own = vars(self).get("_moving_average_sqd_adv_norm")  # moved by a loss that is a copy of RLlib's
        return {"moving_average_sqd_adv_norm": self.squared_advantage if own is None else own, **outputs}


__getattr__ = lazy_policies(__name__, MARWILPolicy, MARWILTorchPolicy="torch", MARWILTFPolicy="tf")
