"""IMPALA: the loss on V-trace and the policy, for both frameworks."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rlframe.agents.families.vtrace_policy import (
    KEPT_NAMES,
    LOSS_COLUMNS,
    Estimates,
    asynchronous_loss,
    complete_for_vtrace,
    postprocess_for_vtrace,
    prepare_vtrace,
    rows_of_vtrace,
    vtrace_optimizers,
    vtrace_options,
    vtrace_stats,
)
from rlframe.data.columns import ACTION_LOGP, ACTIONS
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.policy_gradients import policy_gradient
from rlframe.losses.vtrace import batch_vtrace
from rlframe.policy.action_bounds import ActionBoundPenalty
from rlframe.policy.backends import lazy_policies
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.parts import FusedGradients, LossOutput, OptimizerSpec
from rlframe.policy.popart import OutputPopArt
from rlframe.tensor import ops

if TYPE_CHECKING:
    from rlframe.agents.impala.impala import ImpalaConfig


def vtrace_loss(policy: Any, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
    """Returns the loss of one batch, `asynchronous_loss` with −log π(a|s) A as the surrogate, on V-trace.

    RLlib summed over the rows; with a mean, the length of a step does not depend on the size of the batch.

    Source: Espeholt et al. 2018, "IMPALA", section 4.2.
    """
    dist_inputs, _ = model(train_batch)
    dist, values = dist_class(dist_inputs, model), policy.popart.in_reward_units(model.value_function())
    logp = dist.logp(train_batch[ACTIONS])
    now = ops.stop_gradient(logp), ops.stop_gradient(values)
    vtrace, counts = batch_vtrace(train_batch, *now, **vtrace_options(policy))
    estimates = Estimates(vtrace.targets, vtrace.advantages, counts)
    surrogate = functools.partial(policy_gradient, logp)
    return asynchronous_loss(policy, train_batch, dist, logp, values, estimates, surrogate)


class ImpalaPolicy(LearningPolicy):
    """An actor with a critic, trained on rows of policies that lag behind."""

    config: ImpalaConfig
    defaults_from = "rlframe.agents.impala.impala:DEFAULT_CONFIG"

    learns_values = True
    kept_names = KEPT_NAMES
    train_columns: tuple[str, ...] | None = (ACTION_LOGP,)
    learn_columns: tuple[str, ...] | None = LOSS_COLUMNS
    postprocess_trajectory = postprocess_for_vtrace
    complete_columns = complete_batch = complete_for_vtrace
    counted_rows = rows_of_vtrace
    extra_grad_info = vtrace_stats
    fused_gradients = FusedGradients({"torch": "rlframe.agents.impala.dense_vtrace_torch:DenseVTraceGradients"})

    popart: OutputPopArt
    action_bounds: ActionBoundPenalty
    cur_lr: float
    entropy_coeff: float

    def prepare(self) -> None:
        """Makes schedules, PopArt and the penalty on means beyond the action bounds."""
        prepare_vtrace(self)

    def optimizers(self) -> Mapping[str, OptimizerSpec]:
        """Returns the optimiser that `opt_type` names, with limits for gradients of sums, as RLlib's are."""
        return vtrace_optimizers(self.config, sums=True)

    def values(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        """Returns V(s) [B] of `obs` [B, ...], in discounted reward units."""
        return np.asarray(self.popart.in_reward_units(super().values(obs)), np.float32)

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
        """Returns the loss of one batch; see `vtrace_loss`."""
        return vtrace_loss(self, model, dist_class, train_batch)


__getattr__ = lazy_policies(__name__, ImpalaPolicy, VTraceTorchPolicy="torch", VTraceTFPolicy="tf")
