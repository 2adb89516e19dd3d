"""The loss of fitted Q evaluation and its gradient for all members at once: the same numbers in less time.

Nothing here is needed to understand fitted Q evaluation: `FittedQPolicy.loss` says what is computed, member by member,
and a test holds both to the same gradients. Here a layer of all members is one product of stacked matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rlframe.data.columns import ACTIONS, DISCOUNTS, NEXT_OBS, OBS, REWARDS
from rlframe.data.sample_batch import SampleBatch
from rlframe.models.spec import Dense
from rlframe.offline.evaluation.fitted_q_policy import COUNTS, NEXT_POLICY, NEXT_TAKEN
from rlframe.policy.parts import LossOutput
from rlframe.policy.torch.fused import FusedLoss


class StackedGradients(FusedLoss):
    """Fills the gradients of all members' losses.

    Args:
        policy: A `FittedQPolicy`.

    Raises:
        ValueError: If its networks do not lie one behind the other in one buffer.
    """

    def __init__(self, policy: Any) -> None:
        super().__init__(policy)
        self._names = policy.member_names
        layers = policy.networks()[self._names[0]].layers
        self._online = _Stack(policy.model, self._names, layers, learns=True)
        self._target = _Stack(policy.target_model, self._names, layers, learns=False)

    @torch.no_grad()
    def __call__(self, batch: SampleBatch) -> Tensor:
        """Fills the gradients, has the policy keep its statistics, and returns the loss, a scalar."""
        discrete = bool(self._policy.choices)
        obs, actions = batch[OBS], batch[ACTIONS]
        kept = self._online.forward(obs if discrete else torch.cat([obs, actions], dim=1))
        outputs = kept[-1]  # [E, B, A] for E members, or [E, B, 1]
        index = actions.long().reshape(1, -1, 1).expand(outputs.shape[0], -1, 1) if discrete else None
        values = outputs[..., 0] if index is None else outputs.gather(2, index)[..., 0]
        errors = values - torch.addcmul(batch[REWARDS].t(), batch[DISCOUNTS], self._expected(batch, discrete))
        slopes = batch[COUNTS].t() * errors
        losses = (slopes * errors).mean(dim=1) / 2.0
        slopes = (slopes / errors.shape[1]).unsqueeze(2)
        self._online.backward(kept, slopes if index is None else torch.zeros_like(outputs).scatter_(2, index, slopes))
        total: Tensor = losses.sum()
        self._policy.keep_output(LossOutput(total, {"mean_loss": losses[0]}))
        return total

    def _expected(self, batch: SampleBatch, discrete: bool) -> Tensor:
        """Returns E_{a ~ π_m} f⁻(s', a) by each member, `[E, B]`; of the last, of what was done."""
        following, own, taken = batch[NEXT_OBS], batch[NEXT_POLICY], batch[NEXT_TAKEN]
        if discrete:
            after = self._target.forward(following)[-1]
            return torch.cat([(after[:-1] * own).sum(dim=2), (after[-1:] * taken).sum(dim=2)])
        rows, width = taken.shape
        drawn = own.reshape(rows, -1, width)
        each = torch.cat([drawn.expand(len(self._names) - 1, -1, -1, -1), taken[:, None].expand_as(drawn)[None]])
        seen = torch.cat([following[:, None].expand(*each.shape[:3], -1), each], dim=3)
        values = self._target.forward(seen.reshape(len(each), rows * drawn.shape[1], -1))[-1]
        expected: Tensor = values.reshape(len(each), rows, drawn.shape[1]).mean(dim=2)
        return expected


class _Stack:
    """Networks of the same layers, E of them, forwards and backwards as one; on the memory that their weights have.

    Args:
        model: The module that has the networks.
        names: Of the networks.
        layers: Of each, dense ones.
        learns: Whether there is a `backward`, which writes over the weights' gradients.
    """

    def __init__(self, model: Any, names: Sequence[str], layers: Sequence[Any], *, learns: bool) -> None:
        self._layers: list[tuple[Tensor, Tensor, Tensor | None, Tensor | None, str]] = []
        for layer in layers:
            if not isinstance(layer, Dense) or layer.activation not in ("linear", "tanh"):
                raise ValueError(f"members side by side cannot have the layer {layer}")
            modules = [model.get_submodule(f"{name}.{layer.name}") for name in names]
            weights, biases = [made.weight for made in modules], [made.bias for made in modules]
            grads = (
                [_side_by_side([each.grad for each in made]) for made in (weights, biases)] if learns else (None, None)
            )
            self._layers.append((_side_by_side(weights), _side_by_side(biases), *grads, layer.activation))

    def forward(self, x: Tensor) -> list[Tensor]:
        """Returns what the layers get, and last what the networks give, `[E, B, out]`.

        Args:
            x: `[B, in]` for all networks, or `[E, B, in]`.
        """
        kept = [x.expand(self._layers[0][0].shape[0], *x.shape[-2:])]
        for weight, bias, _, _, activation in self._layers:
            made = torch.baddbmm(bias.unsqueeze(1), kept[-1], weight.transpose(1, 2))
            if activation == "tanh":  # 2σ(2x) − 1: without AVX-512 a tanh takes far longer
                made.mul_(2.0).sigmoid_().mul_(2.0).sub_(1.0)
            kept.append(made)
        return kept

    def backward(self, kept: Sequence[Tensor], grad: Tensor) -> None:
        """Writes the gradients of what `forward` kept, of the loss's gradient by its last part, `[E, B, out]`."""
        for place in range(len(self._layers) - 1, -1, -1):
            weight, _, weight_grad, bias_grad, activation = self._layers[place]
            assert weight_grad is not None
            assert bias_grad is not None
            if activation == "tanh":
                grad = torch.ops.aten.tanh_backward(grad, kept[place + 1])
            torch.bmm(grad.transpose(1, 2), kept[place], out=weight_grad)
            torch.sum(grad, 1, out=bias_grad)
            if place:
                grad = torch.bmm(grad, weight)


def _side_by_side(tensors: Sequence[Any]) -> Tensor:
    """Returns a view `[E, ...]` of E tensors that lie at equal distances in one buffer.

    Raises:
        ValueError: If they do not.
    """
    first, size = tensors[0], len(tensors)
    if first is None or any(each is None or each.data_ptr() == 0 for each in tensors):
        raise ValueError("weights without gradients in a buffer")
    starts = [each.storage_offset() for each in tensors]
    step = starts[1] - starts[0]
    same = all(each.untyped_storage().data_ptr() == first.untyped_storage().data_ptr() for each in tensors)
    if not same or step <= 0 or starts != [starts[0] + step * place for place in range(size)]:
        raise ValueError("weights of several members do not lie at equal distances in one buffer")
    return torch.as_strided(first.detach(), (size, *first.shape), (step, *first.stride()), starts[0])


__all__ = ["StackedGradients"]
