"""One learner step on several devices: each computes the loss of a share of the rows."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import torch
import tree
from torch import Tensor, nn

from rlframe.data.column_dict import is_per_sequence
from rlframe.data.columns import SEQ_LENS, TRAJECTORY_ENDS
from rlframe.data.nested import first_leaf, map_nested
from rlframe.data.sample_batch import SampleBatch
from rlframe.policy.left_by_shares import merge_left
from rlframe.policy.parts import merge_kept


class DataParallel:
    """Copies of a policy's networks, one set per device, which compute with the policy's own parameters.

    Parameters are not copied on the device they lie on; to others they are sent at each step, in a way that gradients
    find back: the gradients of all shares add up in the policy's parameters, each weighted with its part of the rows.
    That is the gradient of the whole batch for every loss that is a mean over rows.

    Args:
        policy: A `TorchPolicy`.
        devices: One per share; the same one may occur several times (`_fake_gpus`).
    """

    def __init__(self, policy: Any, devices: list[torch.device]) -> None:
        self._policy = policy
        self.devices = devices
        self.modules: list[dict[str, nn.Module]] = [
            {role: copy.deepcopy(module).to(device) for role, module in policy._modules_by_role().items()}
            for device in devices
        ]

    def _share_parameters(self) -> None:
        """Lets every copy compute with the policy's parameters and buffers as they are now."""
        for role, owner in self._policy._modules_by_role().items():
            for device, modules in zip(self.devices, self.modules, strict=True):
                for original, replica in zip(owner.modules(), modules[role].modules(), strict=True):
                    for name, parameter in original._parameters.items():
                        replica._parameters[name] = None if parameter is None else parameter.to(device)
                    for name, buffer in original._buffers.items():
                        replica._buffers[name] = None if buffer is None else buffer.to(device)
                    replica.training = original.training

    def losses(self, batch: SampleBatch) -> dict[int, list[tuple[Tensor, float]]]:
        """Returns, by index of optimiser, the losses of all shares with their weights; keeps what they kept, merged.

        Args:
            batch: Tensors of the whole batch.
        """
        policy = self._policy
        self._share_parameters()
        made, kept, weights = [], [], []
        for device, modules, (part, weight) in zip(
            self.devices, self.modules, split_batch(batch, len(self.devices), policy.counted_rows), strict=False
        ):
            with policy._computing_with(modules):
                made.append(policy._losses(_to(part, device)))
            kept.append(policy._loss_outputs)
            weights.append(weight)
        policy._loss_outputs = merge_kept(kept, weights, torch.cat)
        left = [_left(modules["online"], policy.device) for modules in self.modules[: len(made)]]
        if any(left):
            policy.model.tower_stats = merge_left(left, weights, torch.cat)
        return {
            index: [(losses[index], weight) for losses, weight in zip(made, weights, strict=True)] for index in made[0]
        }


def _left(model: Any, device: torch.device) -> dict[str, Any]:
    """Returns what a loss left in a model, on a device and without its graph."""
    return tree.map_structure(  # type: ignore[no-any-return]
        lambda value: value.detach().to(device) if isinstance(value, Tensor) else value,
        getattr(model, "tower_stats", {}),
    )


def split_batch(
    batch: SampleBatch, count: int, counted: Callable[[SampleBatch], Tensor | None]
) -> Iterator[tuple[SampleBatch, float]]:
    """Yields up to `count` shares of a batch of tensors, none of them empty, with their parts of the rows that count.

    Args:
        batch: Rows, or padded sequences, of which each share gets whole ones. Where it has `trajectory_ends`, a share
            ends where a trajectory does: what is computed along trajectories is then not cut.
        count: Wanted number of shares.
        counted: Returns which rows of a batch count, bool `[B]`, or None for all.
    """
    lens = batch.get(SEQ_LENS)
    rows = len(first_leaf(next(value for key, value in batch.items() if not is_per_sequence(key))))
    units = rows if lens is None else len(lens)
    length = rows // max(units, 1)
    mask = counted(batch)
    total = rows if mask is None else int(mask.sum())
    for start, stop in pairwise(_cuts(batch, units, length, count)):
        part = _slice(batch, start, stop, length)
        mask = counted(part)
        yield part, ((stop - start) * length if mask is None else int(mask.sum())) / max(total, 1)


def _cuts(batch: SampleBatch, units: int, length: int, count: int) -> list[int]:
    """Returns where shares begin and end, in rows or sequences."""
    wanted = [units * index // count for index in range(count + 1)]
    ends = batch.get(TRAJECTORY_ENDS)
    if ends is not None:
        flags = ends if SEQ_LENS not in batch else ends.reshape(units, length).any(1)
        allowed = torch.nonzero(flags).flatten() + 1
        wanted[1:-1] = [int(allowed[(allowed - cut).abs().argmin()]) if len(allowed) else units for cut in wanted[1:-1]]
    return sorted(set(wanted))


def _slice(batch: SampleBatch, start: int, stop: int, length: int) -> SampleBatch:
    """Returns the units `[start, stop)` of a batch, each of which has `length` rows."""

    def cut(key: str, value: Any) -> Any:
        step = 1 if is_per_sequence(key) else length
        return map_nested(lambda leaf: leaf[start * step : stop * step], value)

    return batch._like({key: cut(key, value) for key, value in batch.items()})


def _to(batch: SampleBatch, device: torch.device) -> SampleBatch:
    return batch._like(
        {
            key: map_nested(lambda leaf: leaf.to(device) if isinstance(leaf, Tensor) else leaf, value)
            for key, value in batch.items()
        }
    )
