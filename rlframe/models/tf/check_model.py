"""Trying a model once, at construction, so that a wrong shape is named then and not at step 10,000."""

from __future__ import annotations

from typing import Any

import tree

from rlframe.data.sample_batch import SampleBatch
from rlframe.models.probe import ROWS, require_outputs, require_states, require_values, try_model
from rlframe.models.tf.named_variables import telling, watched
from rlframe.utils.quiet_tf import tf


def check_model(
    model: Any, obs_space: Any, num_outputs: int | None, *, values: bool = False, several: bool = False
) -> None:
    """Runs the model eagerly on two observations and checks what it gives.

    It also builds Keras layers that make their variables when they are called first, and registers the variables that
    outputs and values are computed with and that lie in no attribute of the model's. `is_training` is False, and the
    space's random stream is left as it was.

    Args:
        model: A `TFModelV2`.
        obs_space: Preprocessed observation space; observations are elements of its `original_space`, where it has one.
        num_outputs: Wanted width of the outputs; None takes `model.num_outputs`.
        values: Whether `value_function()` is checked as well.
        several: Whether it may give several values per row, `[B, N]`.

    Raises:
        ValueError: If outputs, states or values have another shape than promised, or are no float tensors, or if each
            call makes new variables.
    """
    wanted = model.num_outputs if num_outputs is None else num_outputs
    states = [_state(initial) for initial in model.get_initial_state()]
    seq_lens = tf.ones(ROWS, tf.int32) if states else None

    def call(arrays: Any) -> Any:
        return model(SampleBatch(tree.map_structure(tf.convert_to_tensor, arrays)), states, seq_lens)

    def compute(taker: Any) -> tuple[Any, Any, Any]:
        with telling(taker):
            outputs, new_states = try_model(model, obs_space, call)
            with watched(model):
                return outputs, new_states, model.value_function() if values else None

    taken: list[Any] = []

    def take(owner: Any, variables: list[Any]) -> None:
        owner.register_variables(variables)
        taken.extend(variables)

    outputs, new_states, result = compute(take)
    require_outputs(model, outputs, wanted, _no_float_tensor(outputs))
    require_states(model, states, new_states)
    if values:
        require_values(model, result, is_tensor=tf.is_tensor(result), several=several)
    if taken:
        compute(_refuse_new)


def _refuse_new(model: Any, variables: list[Any]) -> None:
    raise ValueError(
        f"{type(model).__name__}: each call makes new variables, such as {variables[0].name!r}, so that nothing would "
        "be learned; make layers and variables in the constructor, or in forward() by name, with "
        "tf.compat.v1.get_variable"
    )


def _state(initial: Any) -> Any:
    """Returns one initial state `[S]` repeated for every row, `[B, S]`."""
    return tf.stack([tf.convert_to_tensor(initial)] * ROWS)


def _no_float_tensor(outputs: Any) -> str | None:
    """Returns what `outputs` is, in words, or None where it is a float tensor."""
    if not tf.is_tensor(outputs):
        return f"a {type(outputs).__name__}"
    return None if outputs.dtype.is_floating else f"a {type(outputs).__name__} of {outputs.dtype.name}"
