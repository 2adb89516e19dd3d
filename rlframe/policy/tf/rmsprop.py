"""RMSProp with the arithmetic of PyTorch's: Keras' adds ε inside of the root."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rlframe.utils.quiet_tf import tf


class RMSProp:
    """RMSProp for use inside `tf.function`.

        v ← αv + (1 − α)g²,   m ← μm + g / (√v + ε),   θ ← θ − lr · m

    Args:
        variables: `{name: tf.Variable}` that gradients will come for.
        lr: Learning rate.
        decay: α.
        eps: ε.
        momentum: μ.
        label: Its name among a policy's optimisers.

    Source: Tieleman and Hinton 2012, "Lecture 6.5: RMSProp".
    """

    def __init__(
        self,
        variables: Mapping[str, Any],
        lr: float,
        *,
        decay: float = 0.99,
        eps: float = 1e-8,
        momentum: float = 0.0,
        label: str | None = None,
    ) -> None:
        self.label = label
        self._variables = dict(variables)
        self.decay, self.eps, self.momentum = float(decay), float(eps), float(momentum)
        self.learning_rate = tf.Variable(float(lr), trainable=False, name="learning_rate")
        self._squares = {name: self._zeros_like(variable) for name, variable in self._variables.items()}
        self._steps = {name: self._zeros_like(variable) for name, variable in self._variables.items() if momentum}
        self._names = {variable.ref(): name for name, variable in self._variables.items()}

    @staticmethod
    def _zeros_like(variable: Any) -> Any:
        return tf.Variable(tf.zeros(variable.shape, variable.dtype), trainable=False)

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], eps: Any = None, *, global_step: Any = None
    ) -> None:
        """Does one step.

        Args:
            grads_and_vars: Pairs of (gradient, variable); variables without gradient, or of others, are left alone.
            eps: ε of this step, a number or a scalar tensor; None for that of the constructor.
            global_step: Variable that is counted up by one, as TensorFlow 1's optimisers do.
        """
        if global_step is not None:
            global_step.assign_add(1)
        eps = self.eps if eps is None else eps
        for gradient, variable in grads_and_vars:
            name = self._names.get(variable.ref())
            if gradient is None or name is None:
                continue
            squares = self._squares[name]
            mean = squares.assign(self.decay * squares + (1.0 - self.decay) * tf.square(gradient))
            step = gradient / (tf.sqrt(mean) + eps)
            if self.momentum:
                step = self._steps[name].assign(self.momentum * self._steps[name] + step)
            variable.assign_sub(tf.cast(self.learning_rate, variable.dtype) * step)

    def variables(self) -> list[Any]:
        """Returns the optimiser's own variables."""
        return [self.learning_rate, *self._squares.values(), *self._steps.values()]
