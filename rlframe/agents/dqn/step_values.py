"""What Q-networks say of both ends of each step of a batch; along sequences, where the policy has memory."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from rlframe.agents.dqn.q_policy import QOutput
from rlframe.agents.families.replayed_sequences import (
    behind_burn_in,
    model_inputs,
    steps_ahead,
    warmed_up,
    with_steps_to_next,
)
from rlframe.data.columns import N_STEPS, NEXT_OBS, OBS
from rlframe.data.sample_batch import SampleBatch
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor


class StepValues(NamedTuple):
    """What the networks say of both ends of each step, and the steps themselves.

    Attributes:
        q_t: Online network at the beginning.
        q_tp1: Target network at the end, as a constant.
        selector: Q-values `[B, A]` at the end that choose the next action, as constants.
        batch: Columns of the steps.
    """

    q_t: QOutput
    q_tp1: QOutput
    selector: Tensor
    batch: SampleBatch


def step_values(policy: Any, batch: SampleBatch) -> StepValues:
    """Returns what the networks say of both ends of a batch's steps; of sequences, where the policy has memory."""
    if policy.is_recurrent():
        return _values_along_sequences(policy, batch)
    next_obs = batch[NEXT_OBS]
    q_t, q_tp1 = policy.online(batch[OBS]), ops.without_gradient(policy.target, next_obs)
    selector = ops.without_gradient(policy.online, next_obs).q if policy.selects_online else q_tp1.q
    return StepValues(q_t, q_tp1, selector, batch)


def _values_along_sequences(policy: Any, batch: SampleBatch) -> StepValues:
    """Returns what `step_values` does of `histories`: what a step leads to is a later row, by the same memory."""
    burn_in, n = int(policy.config["burn_in"]), int(policy.config.get("n_step", 1))
    inputs = model_inputs(policy.model, batch)

    def ahead(x: Tensor | None) -> Tensor | None:
        return None if x is None else steps_ahead(x, steps[N_STEPS], n)

    def of_target(obs: Tensor) -> QOutput:
        run = partial(_remembers, policy.target_model)
        q: QOutput = policy.target(warmed_up(run, {**inputs, OBS: obs}, burn_in))
        return q

    q_t = policy.online(warmed_up(partial(_remembers, policy.model), inputs, burn_in))
    steps = with_steps_to_next(batch._like(behind_burn_in(batch, burn_in)))
    q_tp1 = QOutput(*map(ahead, ops.without_gradient(of_target, batch[OBS])))
    selector = ahead(ops.stop_gradient(q_t.q)) if policy.selects_online else q_tp1.q
    return StepValues(q_t, q_tp1, selector, steps)


def _remembers(model: Any, columns: Mapping[str, Any]) -> tuple[Tensor, list[Any]]:
    made: tuple[Tensor, list[Any]] = model({**columns, "is_training": True})
    return made
