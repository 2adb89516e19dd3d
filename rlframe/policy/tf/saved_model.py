"""A TensorFlow policy's network as a SavedModel, with the inputs and outputs that RLlib's had."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from rlframe.data.columns import (
    ACTION_DIST_INPUTS,
    ACTION_LOGP,
    ACTION_PROB,
    IS_TRAINING,
    OBS,
    PREV_ACTIONS,
    PREV_REWARDS,
    SEQ_LENS,
    STATE_IN_PREFIX,
    STATE_OUT_PREFIX,
    VF_PREDS,
)
from rlframe.utils.quiet_tf import tf

_OBSERVATIONS, _PREV_ACTION, _PREV_REWARD, _TIMESTEP = "observations", "prev_action", "prev_reward", "timestep"


def write_saved_model(policy: Any, export_dir: str) -> None:
    """Writes `serving_default`, RLlib's signature, and, without memory, `dist_inputs`, observations to these alone.

    Observations are preprocessed ones [B, ...], and `actions_0` greedy. With memory there are `state_in_0`, ... and
    `seq_lens`, of ones where each row is a step by itself, and the states behind the step are `state_out_0`, ...
    Functions of a program's own that make actions are left out, and so are their actions.

    Args:
        policy: The policy.
        export_dir: Folder, made if missing.
    """
    os.makedirs(export_dir, exist_ok=True)
    space = policy.observation_space
    observations = tf.TensorSpec(
        [None, *(space.shape or ())], tf.uint8 if space.dtype == np.uint8 else tf.float32, name=_OBSERVATIONS
    )
    action_shape, action_dtype = _layout(policy.action_space)
    inputs = [
        observations,
        tf.TensorSpec([None, *action_shape], action_dtype, name=_PREV_ACTION),
        tf.TensorSpec([None], tf.float32, name=_PREV_REWARD),
        tf.TensorSpec([], tf.bool, name=IS_TRAINING),
        tf.TensorSpec([], tf.int64, name=_TIMESTEP),
    ]
    states = [np.asarray(state) for state in policy.get_initial_state()]
    if states:
        inputs.append(tf.TensorSpec([None], tf.int32, name=SEQ_LENS))
        inputs += [
            tf.TensorSpec([None, *state.shape], tf.as_dtype(state.dtype), name=f"{STATE_IN_PREFIX}{index}")
            for index, state in enumerate(states)
        ]

    acts_by_distribution = policy._action_sampler_fn is None and policy._action_distribution_fn is None

    def serve(
        observations: Any, prev_action: Any, prev_reward: Any, is_training: Any, timestep: Any, *memory: Any
    ) -> dict[str, Any]:
        del is_training, timestep  # RLlib's clients send them; greedy actions depend on neither
        if not memory:
            dist_inputs, after = policy.dist_inputs(observations), []
        else:
            batch = {OBS: observations, PREV_ACTIONS: prev_action, PREV_REWARDS: prev_reward, IS_TRAINING: False}
            dist_inputs, after = policy.model(batch, list(memory[1:]), memory[0])
        made = {ACTION_DIST_INPUTS: dist_inputs}
        if policy.wants_values:
            made[VF_PREDS] = policy.model.value_function()
        if acts_by_distribution:
            distribution = policy.dist_class(dist_inputs, policy.model)
            actions = distribution.deterministic_sample()
            made |= {f"actions_{index}": part for index, part in enumerate(tf.nest.flatten(actions))}
            made[ACTION_LOGP] = distribution.logp(actions)
            made[ACTION_PROB] = tf.exp(made[ACTION_LOGP])
        return made | {f"{STATE_OUT_PREFIX}{index}": state for index, state in enumerate(after)}

    module = tf.Module()
    module.kept = list(policy.model.named_variables().values())
    module.serve = tf.function(serve, input_signature=inputs)
    signatures = {"serving_default": module.serve}
    if not states:
        only = tf.TensorSpec(observations.shape, observations.dtype, name=OBS)
        module.dist_inputs = signatures["dist_inputs"] = tf.function(policy.dist_inputs, input_signature=[only])
    tf.saved_model.save(module, export_dir, signatures=signatures)


def _layout(space: Any) -> tuple[tuple[int, ...], Any]:
    """Returns shape and dtype of an action as a column of numbers; nested ones are flat."""
    if getattr(space, "shape", None) is None or space.dtype is None:
        from gymnasium.spaces.utils import flatdim

        return (int(flatdim(space)),), tf.float32
    return tuple(space.shape), tf.as_dtype(space.dtype)
