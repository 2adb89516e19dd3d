"""The squared error of a critic of dense layers and its gradient without autograd: the same numbers, sooner.

Nothing here is needed to understand an algorithm; a test holds it to the gradients of its loss.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlframe.data.columns import OBS, VALUE_TARGETS
from rlframe.data.sample_batch import SampleBatch
from rlframe.fast.dense_torch import DenseChain, as_rows
from rlframe.models.fcnet_spec import POPART_LAYER
from rlframe.models.modelv2 import ModelV2
from rlframe.policy.torch.fused import FusedLoss


class DenseValueGradients(FusedLoss):
    """Fills the gradients of mean (V − R)² / σ² for a value network of dense layers, which shares none with the policy.

        ∂ [mean (V − R)² / σ²] / ∂V = 2 (V − R) / (σ² B)

    σ is the deviation that values are normalised by, with PopArt's layer behind the others; 1 without.

    Args:
        policy: A policy whose values' gradients lie in one buffer.

    Raises:
        ValueError: If its value network is not made of dense layers alone, or shares some.
    """

    def __init__(self, policy: Any) -> None:
        super().__init__(policy)
        spec = policy.model.actor_spec()
        if spec is None or "lstm" in spec or spec["values"] is None or spec["shared"]:
            raise ValueError("not a network of dense layers for values alone")
        self._values = DenseChain(policy.model, [layer for layer in spec["values"] if layer["name"] != POPART_LAYER])
        self._popart: Any = getattr(policy.model, POPART_LAYER, None)

    @classmethod
    def knows(cls, policy: Any) -> bool:
        """Returns whether there is a critic to be stepped, of a model that adds nothing to the loss."""
        plain = type(policy.model).custom_loss is ModelV2.custom_loss and policy.numpy_dist is not None
        return bool(plain and policy.config["use_critic"] and policy._optimizers)

    @torch.no_grad()
    def __call__(self, batch: SampleBatch) -> Tensor:
        """Fills the gradients, has the policy keep the statistics, and returns the loss, a scalar."""
        obs, targets = batch[OBS], batch[VALUE_TARGETS]
        kept = self._values.forward(as_rows(obs))
        if self._popart is not None:  # errors in units of σ are those of the network to targets in these units
            targets = (targets - self._popart.bias) / self._popart.weight[0]
        errors = kept[-1].squeeze(1) - targets
        loss: Tensor = errors.square().mean()
        self._policy.keep(vf_loss=loss, vf_explained_var=_explained(targets, errors))
        self._values.backward(kept, errors.mul_(2.0 / len(errors)).unsqueeze(1), input_grad=False)
        return loss


def _explained(targets: Tensor, errors: Tensor) -> Tensor:
    """Returns what `explained_variance` does, of the targets and of values less targets. Scalar."""
    variance, unexplained = torch.stack((targets, errors)).var(1, correction=0).tolist()
    return torch.tensor(max(1.0 - unexplained / max(variance, 1e-12), -1.0) if variance > 0 else -1.0)


__all__ = ["DenseValueGradients"]
