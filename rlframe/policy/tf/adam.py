"""Adam as one kernel per variable, with the arithmetic of PyTorch's and its state under the variables' names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from rlframe.utils.quiet_tf import tf


class Adam:
    """Adam for use inside `tf.function`. Keras' own is a dozen operations per variable; this is one.

        m ← β₁m + (1 − β₁)g,   v ← β₂v + (1 − β₂)g²,   θ ← θ − lr · m̂ / (√v̂ + ε)

    Args:
        variables: `{name: tf.Variable}` that gradients will come for.
        lr: Learning rate.
        eps: ε.
        beta1: β₁.
        beta2: β₂.
        label: Its name among a policy's optimisers.

    Source: Kingma and Ba 2015, "Adam: A Method for Stochastic Optimization", algorithm 1.
    """

    def __init__(
        self,
        variables: Mapping[str, Any],
        lr: float,
        eps: float = 1e-8,
        beta1: float = 0.9,
        beta2: float = 0.999,
        label: str | None = None,
    ) -> None:
        self.label = label
        self._variables = dict(variables)
        self.eps, self.beta1, self.beta2 = float(eps), float(beta1), float(beta2)
        self.learning_rate = tf.Variable(float(lr), trainable=False, name="learning_rate")
        self.step = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
        self._m = {name: self._zeros_like(variable) for name, variable in self._variables.items()}
        self._v = {name: self._zeros_like(variable) for name, variable in self._variables.items()}
        self._names = {variable.ref(): name for name, variable in self._variables.items()}

    @staticmethod
    def _zeros_like(variable: Any) -> Any:
        return tf.Variable(tf.zeros(variable.shape, variable.dtype), trainable=False)

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Any]], *, global_step: Any = None) -> None:
        """Does one step.

        Args:
            grads_and_vars: Pairs of (gradient, variable); variables without gradient, or of others, are left alone.
            global_step: Variable that is counted up by one, as TensorFlow 1's optimisers do.
        """
        if global_step is not None:
            global_step.assign_add(1)
        step = tf.cast(self.step.assign_add(1), tf.float64)
        power1, power2 = (
            tf.pow(tf.constant(self.beta1, tf.float64), step),
            tf.pow(tf.constant(self.beta2, tf.float64), step),
        )
        # The kernel adds ε before it divides by √(1 − β₂ᵗ), the paper after it: hence ε scaled.
        eps = self.eps * tf.sqrt(1.0 - power2)
        numbers = {
            dtype: {
                "beta1_power": tf.cast(power1, dtype),
                "beta2_power": tf.cast(power2, dtype),
                "lr": tf.cast(self.learning_rate, dtype),
                "beta1": tf.constant(self.beta1, dtype),
                "beta2": tf.constant(self.beta2, dtype),
                "epsilon": tf.cast(eps, dtype),
            }
            for dtype in {variable.dtype for variable in self._variables.values()}
        }
        for gradient, variable in grads_and_vars:
            name = self._names.get(variable.ref())
            if gradient is None or name is None:
                continue
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=self._m[name].handle,
                v=self._v[name].handle,
                grad=gradient,
                **numbers[variable.dtype],
            )

    def names(self) -> list[str]:
        """Returns the names of the variables that gradients come for."""
        return list(self._variables)

    def variables(self) -> list[Any]:
        """Returns the optimiser's own variables."""
        return [self.learning_rate, self.step, *self._m.values(), *self._v.values()]

    def get_state(self) -> dict[str, Any]:
        """Returns rate, step count and moments by name: what the policies of all frameworks save and take."""
        step = int(self.step.numpy())
        state: dict[str, Any] = {"kind": "adam", "lr": float(self.learning_rate.numpy()), "step": step}
        if step:
            state["exp_avg"] = {name: np.array(variable.numpy()) for name, variable in self._m.items()}
            state["exp_avg_sq"] = {name: np.array(variable.numpy()) for name, variable in self._v.items()}
        return state

    def set_state(self, saved: Mapping[str, Any]) -> None:
        """Takes what `get_state`, of this framework or another, returned.

        Raises:
            ValueError: If the moments do not fit the variables; the optimiser is left as it was.
        """
        step = int(saved["step"])
        if step:
            for key, mine in (("exp_avg", self._m), ("exp_avg_sq", self._v)):
                for name, variable in mine.items():
                    shape = np.shape(saved[key].get(name, ()))
                    if shape != tuple(variable.shape):
                        raise ValueError(f"optimiser state of {name} is {shape}, wanted {tuple(variable.shape)}")
        self.learning_rate.assign(float(saved["lr"]))
        self.step.assign(step)
        for key, mine in (("exp_avg", self._m), ("exp_avg_sq", self._v)):
            for name, variable in mine.items():
                variable.assign(saved[key][name] if step else np.zeros(variable.shape, np.float32))
