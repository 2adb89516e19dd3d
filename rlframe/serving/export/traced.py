"""What a network that is traced takes and gives, whatever its framework."""

from __future__ import annotations

from typing import Any

import tree

from rlframe.data.columns import OBS, STATE_IN_PREFIX
from rlframe.data.sample_batch import SampleBatch
from rlframe.models.modelv2 import states_of
from rlframe.policy.own_inference import HookedInference, sampled


def columns_taken(policy: Any) -> list[str]:
    """Returns the names of the columns that acting takes, in the order of the network's inputs."""
    return [OBS, *(f"{STATE_IN_PREFIX}{index}" for index in range(policy.num_state_tensors())), *policy.acting_views()]


def acted(policy: Any, batch: SampleBatch) -> list[Any]:
    """Returns the distribution's inputs `[B, K]` and the states behind the step, all tensors of the framework.

    Where a distribution or functions of the user's own choose the action, its parts stand in place of the inputs.
    """
    step = policy.global_timestep
    if policy._action_sampler_fn is not None:
        made = policy._action_sampler_fn(policy, policy.model, batch, states_of(batch), explore=False, timestep=step)
        actions, _, _, states = sampled(made)
    else:
        inputs, dist_class, states = policy._dist_inputs(batch, False, step)
        if not isinstance(policy.inference, HookedInference):
            return [inputs, *states]
        actions = dist_class(inputs, policy.model).deterministic_sample()
    return [*tree.flatten(actions), *(states or ())]


__all__ = ["acted", "columns_taken"]
