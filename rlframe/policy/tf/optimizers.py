"""Optimisers of any make behind one interface: our Adam, Keras', and those of TensorFlow 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from rlframe.policy.tf.adam import Adam
from rlframe.utils.quiet_tf import tf


class _WithTape:
    """An optimiser whose `compute_gradients(loss, variables)` works on a recorded tape, as it did on a graph.

    Attributes:
        tape: The tape, as hooks for RLlib's eager policies have it.
    """

    def __init__(self, optimizer: Any, tape: Any) -> None:
        self._optimizer, self.tape = optimizer, tape

    def compute_gradients(
        self,
        loss: Any,
        var_list: Any = None,
        gate_gradients: Any = None,
        aggregation_method: Any = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Any = None,
    ) -> list[tuple[Any, Any]]:
        """Returns (gradient, variable) pairs; gradients are None for variables that the loss does not depend on.

        Args:
            loss: A tensor.
            var_list: The variables; None takes all that the tape saw.
            gate_gradients: Not used, as the next two: they said in which order and where a graph computes.
            aggregation_method: Not used.
            colocate_gradients_with_ops: Not used.
            grad_loss: Gradient of what `loss` goes into, by `loss`; None for ones.
        """
        del gate_gradients, aggregation_method, colocate_gradients_with_ops
        variables = list(self.tape.watched_variables() if var_list is None else var_list)
        return list(zip(self.tape.gradient(loss, variables, grad_loss), variables, strict=True))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)


def with_tape(optimizer: Any, tape: Any) -> Any:
    """Returns the optimiser with TensorFlow 1's `compute_gradients`."""
    return _WithTape(optimizer, tape)


def build_slots(optimizer: Any, variables: list[Any]) -> None:
    """Lets an optimiser make its own variables, which it cannot do inside a traced function.

    Those of TensorFlow 1 read their learning rate when a step is traced: it becomes a variable, which schedules set.
    """
    if isinstance(optimizer, Adam):
        return
    for name in _RATES_OF_TF1:
        rate = getattr(optimizer, name, None)
        if isinstance(optimizer, tf.compat.v1.train.Optimizer) and isinstance(rate, (int, float)):
            setattr(optimizer, name, tf.Variable(float(rate), trainable=False, name="learning_rate"))
    if hasattr(optimizer, "build"):
        optimizer.build(variables)
    elif hasattr(optimizer, "_create_slots"):
        optimizer._create_slots(variables)


def own_variables(optimizer: Any) -> list[Any]:
    """Returns an optimiser's variables: step count and moments."""
    variables = optimizer.variables
    return list(variables() if callable(variables) else variables)


def optimizer_state(optimizer: Any) -> dict[str, Any]:
    """Returns an optimiser's state by the state convention."""
    if isinstance(optimizer, Adam):
        return optimizer.get_state()
    return {
        "kind": type(optimizer).__name__,
        "variables": [np.array(variable.numpy()) for variable in own_variables(optimizer)],
    }


def load_optimizer(optimizer: Any, saved: Mapping[str, Any]) -> None:
    """Puts back what `optimizer_state` returned.

    Raises:
        ValueError: If the state is of another kind of optimiser, or of other variables.
    """
    _RATES.pop(optimizer, None)
    mine = "adam" if isinstance(optimizer, Adam) else type(optimizer).__name__
    kind = saved.get("kind", "another framework's optimiser")
    if kind != mine:
        raise ValueError(f"the saved optimiser is {kind}, this policy's is {mine}")
    if isinstance(optimizer, Adam):
        optimizer.set_state(saved)
        return
    variables = own_variables(optimizer)
    if [tuple(np.shape(array)) for array in saved["variables"]] != [tuple(variable.shape) for variable in variables]:
        raise ValueError("the saved optimiser has other variables than this policy's")
    for variable, array in zip(variables, saved["variables"], strict=True):
        variable.assign(np.asarray(array))


#: The rates that optimisers were given last: to assign a variable takes as long as acting does, and schedules ask for
#: it at every step.
_RATES: WeakKeyDictionary[Any, float] = WeakKeyDictionary()
#: Attributes in which TensorFlow 1's optimisers keep their learning rate.
_RATES_OF_TF1 = ("_lr", "_learning_rate")


def set_rate(optimizer: Any, lr: float) -> None:
    """Sets an optimiser's learning rate, unless it is what it was set to the last time.

    One that was made with a schedule of its own, Keras' or a function, follows that.

    Raises:
        ValueError: If it has none that can be set: `lr_schedule` cannot work with it.
    """
    before = _RATES.get(optimizer)
    if before == lr:
        return
    own = callable(getattr(optimizer, "_learning_rate", None))
    if own and before is not None:
        raise ValueError(
            f"optimizer(): the {type(optimizer).__name__} follows a schedule of its own, so that its learning rate "
            f"cannot be set to {lr}: give it a number, such as config['lr'], or leave lr_schedule out"
        )
    if not own:
        _set_rate(optimizer, lr)
    _RATES[optimizer] = lr


def _set_rate(optimizer: Any, lr: float) -> None:
    for name in ("learning_rate", *_RATES_OF_TF1, "lr"):
        rate = getattr(optimizer, name, None)
        if rate is None:
            continue
        if hasattr(rate, "assign"):
            rate.assign(lr)
        elif isinstance(rate, float) and rate == lr:
            pass
        elif hasattr(type(optimizer), name):
            setattr(optimizer, name, lr)
        else:
            raise ValueError(
                f"the learning rate of {type(optimizer).__name__} is fixed when it is traced; use a Keras optimiser "
                "(tf.keras.optimizers), or leave optimizer_fn out"
            )
        return
    if not isinstance(optimizer, tf.Module):
        raise ValueError(f"{type(optimizer).__name__} has no learning rate that could follow a schedule")


def clip_each(gradients: list[tuple[Any, Any]], limit: float) -> tuple[list[tuple[Any, Any]], Any]:
    """Returns (gradient, variable) pairs with gradients scaled to an L2 norm of at most `limit`, each by itself.

    Returns:
        The pairs, and the global norm before, a scalar. Variables without a gradient are left out.
    """
    known = [(gradient, variable) for gradient, variable in gradients if gradient is not None]
    norms = [tf.norm(gradient) for gradient, _ in known]
    scaled = [(g * tf.minimum(limit / norm, 1.0), v) for (g, v), norm in zip(known, norms, strict=True)]
    return scaled, tf.norm(tf.stack(norms))
