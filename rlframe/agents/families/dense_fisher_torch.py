"""Fisher-vector products of dense networks without autograd: the same numbers, sooner.

Nothing here is needed to understand an algorithm; a test holds it to the second derivatives of its divergence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from rlframe.data.columns import OBS
from rlframe.data.sample_batch import SampleBatch
from rlframe.fast.dense_torch import SLOPES, DenseChain, as_rows, matmul
from rlframe.models.distributions import Categorical
from rlframe.models.gaussian import DiagGaussian


def of_categorical(logits: Tensor) -> Callable[[Tensor], Tensor]:
    """Returns u ↦ M u with M = diag(p) − p pᵀ, the Fisher matrix of a choice by its logits, row by row."""
    probs = logits.softmax(1)
    return lambda u: probs * (u - (probs * u).sum(1, keepdim=True))


def of_gaussian(inputs: Tensor) -> Callable[[Tensor], Tensor]:
    """Returns u ↦ M u with M = diag(1 / σ², 2), the Fisher matrix of a Gaussian by mean and log σ, row by row."""
    log_std = inputs[:, inputs.shape[1] // 2 :]
    diagonal = torch.cat([torch.exp(-2.0 * log_std), torch.full_like(log_std, 2.0)], 1)
    return lambda u: diagonal * u


_OF_INPUTS: Mapping[Any, Callable[[Tensor], Callable[[Tensor], Tensor]]] = {
    Categorical: of_categorical,
    DiagGaussian: of_gaussian,
}


class DenseFisher:
    """Gives v ↦ F v with F = mean Jᵀ M J, the second derivatives of the mean KL where it is 0.

    J is the Jacobian of the network's outputs by its weights: J v goes through the layers forwards, Jᵀ backwards.

    Args:
        policy: A policy around a `TorchModelV2`.
        names: Names of the weights, in the order of the vectors.

    Raises:
        ValueError: If its outputs do not come from dense layers alone, or the distribution is another one.
    """

    def __init__(self, policy: Any, names: list[str]) -> None:
        spec = policy.model.actor_spec()
        if spec is None or "lstm" in spec or policy.numpy_dist not in _OF_INPUTS:
            raise ValueError("not a network of dense layers for choices or Gaussians")
        self._of_inputs = _OF_INPUTS[policy.numpy_dist]
        layers = list(spec["outputs"])
        self._log_std: Tensor | None = None
        wanted = [f"{layer['name']}.{part}" for layer in layers for part in ("weight", "bias")]
        if layers and layers[-1]["name"] == "free_log_std":
            layers, wanted = layers[:-1], [*wanted[:-2], "free_log_std.log_std"]
            self._log_std = policy.model.get_submodule("free_log_std").log_std.detach()
        if wanted != names:
            raise ValueError(f"the weights {names} are not those of the layers, {wanted}")
        self._chain = DenseChain(policy.model, layers, frozen=True)
        self._layers = [
            (policy.model.get_submodule(layer["name"]).weight.detach(), SLOPES[layer["activation"]]) for layer in layers
        ]

    @classmethod
    def of(cls, policy: Any, names: list[str]) -> DenseFisher | None:
        """Returns the products for a policy, or None where they must go by autograd."""
        try:
            return cls(policy, names) if policy.numpy_dist is not None else None
        except ValueError:
            return None

    @torch.no_grad()
    def product(self, batch: SampleBatch) -> Callable[[list[Tensor]], list[Tensor]]:
        """Returns F for a batch, at the weights as they are: a function of tensors in the weights' shapes."""
        obs = batch[OBS]
        kept = self._chain.forward(as_rows(obs))
        outputs, rows = kept[-1], len(obs)
        if self._log_std is not None:
            outputs = torch.cat([outputs, self._log_std.expand(rows, -1)], 1)
        of_inputs = self._of_inputs(outputs)

        @torch.no_grad()
        def product(parts: list[Tensor]) -> list[Tensor]:
            moved = self._forwards(kept, parts)
            if self._log_std is not None:
                moved = torch.cat([moved, parts[-1].expand(rows, -1)], 1)
            grad = of_inputs(moved).div_(rows)
            if self._log_std is None:
                return self._backwards(kept, grad)
            split = grad.shape[1] - len(parts[-1])
            return [*self._backwards(kept, grad[:, :split]), grad[:, split:].sum(0)]

        return product

    def _forwards(self, kept: list[Tensor], parts: list[Tensor]) -> Tensor:
        """Returns J v [B, out]: how outputs move when the weights move by `parts`."""
        moved: Tensor | None = None
        for index, (weight, slope) in enumerate(self._layers):
            by_weight = torch.addmm(parts[2 * index + 1], kept[index], parts[2 * index].t())
            moved = by_weight if moved is None else by_weight.add_(matmul(moved, weight.t()))
            moved = moved if slope is None else slope(moved, kept[index + 1])
        assert moved is not None
        return moved

    def _backwards(self, kept: list[Tensor], grad: Tensor) -> list[Tensor]:
        """Returns Jᵀ g, in the weights' shapes, of g [B, out]."""
        found: list[Tensor] = []
        for index in range(len(self._layers) - 1, -1, -1):
            weight, slope = self._layers[index]
            grad = grad if slope is None else slope(grad, kept[index + 1])
            found += [grad.sum(0), matmul(grad.t(), kept[index])]
            grad = matmul(grad, weight) if index else grad
        return found[::-1]


__all__ = ["DenseFisher"]
