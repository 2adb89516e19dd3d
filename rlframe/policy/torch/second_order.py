"""A loss and a divergence of a torch policy, with second derivatives, as functions of one vector of weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlframe.data.columns import ACTION_DIST_INPUTS
from rlframe.data.sample_batch import SampleBatch
from rlframe.policy.loss_phases import own_loss
from rlframe.policy.users_code import method


def flat_vector(tensors: Sequence[Tensor]) -> Tensor:
    """Returns the values of all tensors, one tensor after the other, as a vector `[P]`."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def split_vector(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Returns a vector `[P]` as tensors in the shapes of others, which have P values in all; undoes `flat_vector`."""
    parts = torch.split(vector, [tensor.numel() for tensor in like])
    return [part.view(tensor.shape) for part, tensor in zip(parts, like, strict=True)]


def hessian_product(function: Callable[[], Tensor], weights: Sequence[Tensor]) -> Callable[[Tensor], Tensor]:
    """Returns v ↦ H v, with H the matrix of second derivatives of `function()`, a scalar, by some weights.

    H itself, `[P, P]` for P numbers in all weights, is never made: H v is the gradient of (∂f/∂w · v).

    Args:
        function: Computes the scalar of the weights as they are; they must stay so while products are taken.
        weights: Parameters that require gradients; at least one.

    Returns:
        A function of a vector as `flat_vector` makes it of tensors in the weights' shapes. Float `[P]` to `[P]`.

    Source: Pearlmutter 1994, "Fast Exact Multiplication by the Hessian".
    """
    # One graph of the gradient serves all products.
    slopes = torch.autograd.grad(function(), weights, create_graph=True, materialize_grads=True)
    bent = [slope.requires_grad for slope in slopes]  # others are constants: no second derivatives

    def product(vector: Tensor) -> Tensor:
        along = zip(slopes, split_vector(vector, weights), bent, strict=True)
        outputs, parts = zip(*[(slope, part) for slope, part, is_bent in along if is_bent], strict=True)
        return flat_vector(torch.autograd.grad(outputs, weights, parts, retain_graph=True, materialize_grads=True))

    return product if any(bent) else torch.zeros_like


class TorchSecondOrder:
    """See `rlframe.policy.parts.SecondOrder`.

    The model is in evaluation mode: the divergence is one of the policies that act.

    Args:
        policy: A `TorchPolicy` with `divergence(model, dist_class, batch) -> scalar`.
        name: Name of the loss in `policy.own_steps`, or of an optimiser.
    """

    def __init__(self, policy: Any, name: str) -> None:
        self._policy, self._name = policy, name
        weights = policy.weights_stepped_by(name)
        self._weights: list[Tensor] = list(weights.values())
        fused = policy.fused_curvature.find(policy) if policy.fused_curvature else None
        #: What gives products without autograd; None where autograd does.
        self.without_autograd: Any = None if fused is None else fused.of(policy, list(weights))
        self._product: Callable[[Tensor], Tensor] | None = None

    def begin(self, samples: SampleBatch, curvature_samples: SampleBatch | None = None) -> None:
        """Takes a batch; divergences are from the distributions of the weights as they are now."""
        policy = self._policy
        policy._threads.use(samples.count)
        policy.model.eval()
        self._samples, self._product = samples, None
        if curvature_samples is None:
            self._batch = self._tensors(samples)
            return
        self._batch = self._with_own_inputs(samples)
        few = curvature_samples is samples
        self._curvature_batch = self._batch if few else self._with_own_inputs(curvature_samples)

    def _tensors(self, samples: SampleBatch) -> SampleBatch:
        policy = self._policy
        batch: SampleBatch = policy._lazy_tensor_dict(policy._learned_columns(samples))
        batch.set_training(False)
        return batch

    def _with_own_inputs(self, samples: SampleBatch) -> SampleBatch:
        """Returns a batch of tensors with the distributions' inputs that the model gives now."""
        batch = self._tensors(samples)
        with torch.no_grad():
            batch[ACTION_DIST_INPUTS] = self._policy.model(batch)[0]
        return batch

    def get_flat(self) -> NDArray[np.float32]:
        """Returns a copy of the weights. Float32 `[P]`."""
        return _array(flat_vector([weight.detach() for weight in self._weights]))

    def set_flat(self, vector: NDArray[Any]) -> None:
        """Sets the weights from `[P]` numbers."""
        with torch.no_grad():
            for weight, part in zip(self._weights, split_vector(self._tensor(vector), self._weights), strict=True):
                weight.copy_(part)

    def loss_and_gradient(self) -> tuple[float, NDArray[np.float32]]:
        """Returns the loss, and its gradient by the weights, float32 `[P]`."""
        with torch.backends.cudnn.flags(enabled=False):  # cuDNN has no gradients of recurrences in evaluation mode
            loss = self._loss()
            self._policy.check_finite_loss(loss, 0, self._samples)
            found = torch.autograd.grad(loss, self._weights, materialize_grads=True)
        return loss.item(), _array(flat_vector(found))

    def divergence_product(self, vector: NDArray[Any]) -> NDArray[np.float32]:
        """Returns H v, with H the second derivatives of the divergence at the weights that the batch began with."""
        if self._product is None:
            self._product = self._make_product(self._curvature_batch)
        return _array(self._product(self._tensor(vector)))

    def loss_product(self, vector: NDArray[Any]) -> NDArray[np.float32]:
        """Returns H v, with H the second derivatives of the loss at the weights as they are."""
        with torch.backends.cudnn.flags(enabled=False):
            return _array(hessian_product(self._loss, self._weights)(self._tensor(vector)))

    def gradients_of(self, vector: NDArray[Any]) -> list[NDArray[np.float32] | None]:
        """Returns a gradient `[P]` as the policy's `apply_gradients` takes it: an array for each parameter, or None."""
        parts = split_vector(self._tensor(vector), self._weights)
        mine = {id(weight): _array(part) for weight, part in zip(self._weights, parts, strict=True)}
        return [mine.get(id(parameter)) for parameter in self._policy.model.parameters()]

    def _make_product(self, batch: SampleBatch) -> Callable[[Tensor], Tensor]:
        if self.without_autograd is not None and not self._policy.model_altered:
            product = self.without_autograd.product(batch)
            return lambda vector: flat_vector(product(split_vector(vector, self._weights)))
        # cuDNN's recurrent layers have no second derivatives.
        with torch.backends.cudnn.flags(enabled=False):
            return hessian_product(lambda: self._divergence(batch), self._weights)

    def loss_and_divergence(self) -> tuple[float, float]:
        """Returns loss and divergence of the weights as they are; keeps what the loss reports."""
        self._product = None  # its graph is one of other weights
        with torch.no_grad():
            return self._loss().item(), self._divergence(self._batch).item()

    def _loss(self) -> Tensor:
        policy = self._policy
        with policy.only_due(self._name):
            made = method(policy, "loss")(policy.model, policy.dist_class, self._batch)
            loss: Tensor = own_loss(policy, self._name, made, self._batch)
        return loss

    def _divergence(self, batch: SampleBatch) -> Tensor:
        divergence: Tensor = self._policy.divergence(self._policy.model, self._policy.dist_class, batch)
        return divergence

    def _tensor(self, vector: NDArray[Any]) -> Tensor:
        weight = self._weights[0]
        return torch.as_tensor(np.asarray(vector, np.float32), dtype=weight.dtype, device=weight.device)


def _array(vector: Tensor) -> NDArray[np.float32]:
    return np.asarray(vector.cpu().numpy(), np.float32)
