"""A loss and a divergence of a TensorFlow policy, with second derivatives, as functions of one vector of weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import ACTION_DIST_INPUTS
from rlframe.data.sample_batch import SampleBatch
from rlframe.policy.loss_phases import own_loss
from rlframe.policy.nonfinite import explain_nonfinite
from rlframe.policy.tf.traced import TracedCalls, tensor_columns
from rlframe.policy.users_code import method
from rlframe.utils.quiet_tf import tf

Tensor: TypeAlias = Any
#: The column in which a product's vector reaches the traced function.
_VECTOR = "second_order_vector"


def flat_vector(tensors: Sequence[Tensor]) -> Tensor:
    """Returns the values of all tensors, one tensor after the other, as a vector `[P]`."""
    return tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], 0)


def split_vector(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Returns a vector `[P]` as tensors in the shapes of others, which have P values in all; undoes `flat_vector`."""
    parts = tf.split(vector, [tensor.shape.num_elements() for tensor in like])
    return [tf.reshape(part, tensor.shape) for part, tensor in zip(parts, like, strict=True)]


def hessian_product(function: Callable[[], Tensor], weights: Sequence[Tensor]) -> Callable[[Tensor], Tensor]:
    """Returns v ↦ H v, with H the matrix of second derivatives of `function()`, a scalar, by some weights.

    H itself, `[P, P]` for P numbers in all weights, is never made: H v is the gradient of (∂f/∂w · v).

    Args:
        function: Computes the scalar of the weights as they are.
        weights: Variables; at least one.

    Returns:
        A function of a vector as `flat_vector` makes it of tensors in the weights' shapes. Float `[P]` to `[P]`.

    Source: Pearlmutter 1994, "Fast Exact Multiplication by the Hessian".
    """

    def product(vector: Tensor) -> Tensor:
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                made = function()
            slopes = inner.gradient(made, weights, unconnected_gradients="zero")
        parts = split_vector(vector, weights)
        return flat_vector(outer.gradient(slopes, weights, parts, unconnected_gradients="zero"))

    return product


class TFSecondOrder:
    """See `rlframe.policy.parts.SecondOrder`. What computes is traced once for each kind of batch.

    Args:
        policy: A `TFPolicy` with `divergence(model, dist_class, batch) -> scalar`.
        name: Name of the loss in `policy.own_steps`, or of an optimiser.
    """

    def __init__(self, policy: Any, name: str) -> None:
        self._policy, self._name = policy, name
        self._weights = list(policy.weights_stepped_by(name).values())
        self._inputs_calls = TracedCalls(self._traced_inputs)
        self._gradient_calls = TracedCalls(self._traced_gradient)
        self._product_calls = TracedCalls(self._traced_product)
        self._loss_product_calls = TracedCalls(self._traced_loss_product)
        self._value_calls = TracedCalls(self._traced_values)

    def begin(self, samples: SampleBatch, curvature_samples: SampleBatch | None = None) -> None:
        """Takes a batch; divergences are from the distributions of the weights as they are now."""
        self._samples = samples
        if curvature_samples is None:
            self._columns = tensor_columns(self._policy._learned_columns(samples))
            return
        self._columns = self._with_own_inputs(samples)
        few = curvature_samples is samples
        self._curvature_columns = self._columns if few else self._with_own_inputs(curvature_samples)

    def _with_own_inputs(self, samples: SampleBatch) -> dict[str, Any]:
        """Returns a batch's columns with the distributions' inputs that the model gives now."""
        columns = tensor_columns(self._policy._learned_columns(samples))
        return {**columns, ACTION_DIST_INPUTS: self._inputs_calls(columns, {})["inputs"]}

    def get_flat(self) -> NDArray[np.float32]:
        """Returns a copy of the weights. Float32 `[P]`."""
        return np.array(flat_vector([weight.read_value() for weight in self._weights]).numpy(), np.float32)

    def set_flat(self, vector: NDArray[Any]) -> None:
        """Sets the weights from `[P]` numbers."""
        given = tf.convert_to_tensor(np.asarray(vector, np.float32))
        for weight, part in zip(self._weights, split_vector(given, self._weights), strict=True):
            weight.assign(part)
        self._policy._weights_changed()

    def loss_and_gradient(self) -> tuple[float, NDArray[np.float32]]:
        """Returns the loss, and its gradient by the weights, float32 `[P]`."""
        made = self._gradient_calls(self._columns, self._policy._scalars())
        if not math.isfinite(made["loss"]):
            raise explain_nonfinite(0, made["loss"], self._policy, self._samples)
        self._policy._loss_outputs = made["kept"]
        return made["loss"], made["gradient"]

    def divergence_product(self, vector: NDArray[Any]) -> NDArray[np.float32]:
        """Returns H v, with H the second derivatives of the divergence at the weights that the batch began with."""
        columns = {**self._curvature_columns, _VECTOR: np.asarray(vector, np.float32)}
        product: NDArray[np.float32] = self._product_calls(columns, self._policy._scalars())["product"]
        return product

    def loss_product(self, vector: NDArray[Any]) -> NDArray[np.float32]:
        """Returns H v, with H the second derivatives of the loss at the weights as they are."""
        columns = {**self._columns, _VECTOR: np.asarray(vector, np.float32)}
        product: NDArray[np.float32] = self._loss_product_calls(columns, self._policy._scalars())["product"]
        return product

    def gradients_of(self, vector: NDArray[Any]) -> list[NDArray[np.float32] | None]:
        """Returns a gradient `[P]` as the policy's `apply_gradients` takes it: an array for each variable, or None."""
        parts = split_vector(tf.convert_to_tensor(np.asarray(vector, np.float32)), self._weights)
        mine = {weight.ref(): part.numpy() for weight, part in zip(self._weights, parts, strict=True)}
        return [mine.get(variable.ref()) for variable in self._policy.model.trainable_variables()]

    def loss_and_divergence(self) -> tuple[float, float]:
        """Returns loss and divergence of the weights as they are; keeps what the loss reports."""
        made = self._value_calls(self._columns, self._policy._scalars())
        self._policy._loss_outputs = made["kept"]
        return made["loss"], made["divergence"]

    # --- traced -----------------------------------------------------------------------------------------------

    def _traced_inputs(self, columns: Mapping[str, Tensor], scalars: Mapping[str, Tensor]) -> dict[str, Any]:
        del scalars
        return {"inputs": self._policy.model(self._batch_of(columns))[0]}

    def _traced_gradient(self, columns: Mapping[str, Tensor], scalars: Mapping[str, Tensor]) -> dict[str, Any]:
        with self._policy._symbolic(scalars):
            with tf.GradientTape() as tape:
                loss = self._loss(self._batch_of(columns))
            found = tape.gradient(loss, self._weights, unconnected_gradients="zero")
            return {"loss": loss, "gradient": flat_vector(found), "kept": dict(self._policy._loss_outputs)}

    def _traced_product(self, columns: Mapping[str, Tensor], scalars: Mapping[str, Tensor]) -> dict[str, Any]:
        return self._product_of(self._divergence, columns, scalars)

    def _traced_loss_product(self, columns: Mapping[str, Tensor], scalars: Mapping[str, Tensor]) -> dict[str, Any]:
        return self._product_of(self._loss, columns, scalars)

    def _product_of(
        self, function: Callable[[SampleBatch], Tensor], columns: Mapping[str, Tensor], scalars: Mapping[str, Tensor]
    ) -> dict[str, Any]:
        rest = dict(columns)
        vector = rest.pop(_VECTOR)
        with self._policy._symbolic(scalars):
            product = hessian_product(lambda: function(self._batch_of(rest)), self._weights)
            return {"product": product(vector)}

    def _traced_values(self, columns: Mapping[str, Tensor], scalars: Mapping[str, Tensor]) -> dict[str, Any]:
        with self._policy._symbolic(scalars):
            loss, divergence = self._loss(self._batch_of(columns)), self._divergence(self._batch_of(columns))
            return {"loss": loss, "divergence": divergence, "kept": dict(self._policy._loss_outputs)}

    def _batch_of(self, columns: Mapping[str, Tensor]) -> SampleBatch:
        batch = SampleBatch.from_columns(dict(columns))
        batch.set_training(False)
        return batch

    def _loss(self, batch: SampleBatch) -> Tensor:
        policy = self._policy
        with policy.only_due(self._name):
            made = method(policy, "loss")(policy.model, policy.dist_class, batch)
            return own_loss(policy, self._name, made, batch)

    def _divergence(self, batch: SampleBatch) -> Tensor:
        return self._policy.divergence(self._policy.model, self._policy.dist_class, batch)
