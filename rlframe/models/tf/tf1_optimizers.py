"""Optimisers that policies of programs make and call themselves: TensorFlow 1's and Keras'."""

from __future__ import annotations

import functools
from typing import Any


def accept(tf: Any, keras: Any) -> None:
    """Has `tf1.train` optimisers take Keras' variables, and Keras' optimisers make their moments outside a traced step.

    Keras' variables are no variables of TensorFlow's own since Keras 3. RLlib's eager policies were not traced, so that
    optimisers could make their variables when they stepped first.
    """
    kind = tf.compat.v1.train.Optimizer
    compute, apply = kind.compute_gradients, kind.apply_gradients

    def plain(variable: Any) -> Any:
        return variable._value if isinstance(variable, keras.Variable) else variable

    @functools.wraps(compute)
    def compute_gradients(self: Any, loss: Any, var_list: Any = None, *args: Any, **kwargs: Any) -> Any:
        if var_list is None:
            return compute(self, loss, var_list, *args, **kwargs)
        given = list(var_list)
        made = compute(self, loss, [plain(variable) for variable in given], *args, **kwargs)
        return [(gradient, variable) for (gradient, _), variable in zip(made, given, strict=True)]

    @functools.wraps(apply)
    def apply_gradients(self: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        return apply(self, [(gradient, plain(variable)) for gradient, variable in grads_and_vars], *args, **kwargs)

    kind.compute_gradients, kind.apply_gradients = compute_gradients, apply_gradients
    of_keras = keras.optimizers.Optimizer
    step = of_keras.apply

    @functools.wraps(step)
    def apply_built(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        if trainable_variables is not None and not self.built:
            trainable_variables = list(trainable_variables)
            with tf.init_scope():
                self.build(trainable_variables)
        return step(self, grads, trainable_variables)

    of_keras.apply = apply_built
