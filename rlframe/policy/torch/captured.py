"""Losses with their gradients as CUDA graphs: a hundred small operations for one launch.

On a GPU small networks' operations take less time than their launches. A graph is captured once, and launched as one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlframe.data.sample_batch import SampleBatch

#: Calls that are alike before a graph is made of them. Making one takes as long as some fifty calls: coefficients that
#: change after a few must not bring one each. Libraries choose their ways in the first calls, too.
WARM_UP = 64
#: Graphs that are kept, the oldest goes when there is one more; and kinds of calls that are counted.
MOST_GRAPHS, MOST_COUNTED = 8, 64

Key = tuple[Any, ...]


class CapturedLoss:
    """A `FusedLoss` on a GPU that is captured where it says by `host_state` what else than the batch it depends on.

    Weights, gradients and targets are read and written where they are, so nothing is captured anew when they change.

    Args:
        fused: The loss.
        policy: Its policy.
    """

    def __init__(self, fused: Any, policy: Any) -> None:
        self.fused, self._policy = fused, policy
        self._calls: Counter[Key] = Counter()
        self._graphs: dict[Key, _Graph] = {}

    def __call__(self, batch: SampleBatch) -> Any:
        """Fills the gradients, has the policy keep its statistics, and returns the loss, or losses by optimiser.

        What the policy keeps of it are the tensors of the next call, too.

        Args:
            batch: Tensors.
        """
        host = self.fused.host_state()
        if host is None:
            return self.fused(batch)
        if further := self.fused.inputs():
            batch = SampleBatch.from_columns({**batch, **further})
        tensors = {name: column for name, column in batch.items() if isinstance(column, Tensor)}
        key = (host, *((name, column.shape, column.dtype) for name, column in tensors.items()))
        graph = self._graphs.get(key)
        if graph is None:
            if len(self._calls) > MOST_COUNTED:
                self._calls.clear()
            self._calls[key] += 1
            if self._calls[key] <= WARM_UP:
                return self.fused(batch)
            if len(self._graphs) == MOST_GRAPHS:
                del self._graphs[next(iter(self._graphs))]
            graph = self._graphs[key] = _Graph(self.fused, self._policy, tensors)
        return graph(tensors)


class _Graph:
    """A loss with its gradients, captured for batches of one shape.

    Args:
        fused: The loss.
        policy: Its policy.
        tensors: A batch's columns.
    """

    def __init__(self, fused: Any, policy: Any, tensors: Mapping[str, Tensor]) -> None:
        self._policy = policy
        self._inputs = {name: column.clone() for name, column in tensors.items()}
        self._graph = torch.cuda.CUDAGraph()
        # Other threads may go on with the device meanwhile: those that sample act on it.
        stream = torch.cuda.Stream()  # PyTorch's own for this would be that of all threads
        with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
            self._losses = fused(SampleBatch.from_columns(dict(self._inputs)))
        self._kept = policy._per_row, policy._loss_outputs

    def __call__(self, tensors: Mapping[str, Tensor]) -> Any:
        """Computes with a batch; returns the losses, which hooks may keep."""
        by_type: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
        for name, column in tensors.items():
            inputs, given = by_type.setdefault(column.dtype, ([], []))
            inputs.append(self._inputs[name])
            given.append(column)
        for inputs, given in by_type.values():
            torch._foreach_copy_(inputs, given)
        self._graph.replay()
        self._policy._per_row, kept = self._kept
        self._policy._loss_outputs = dict(kept)
        losses = self._losses
        return {name: loss.clone() for name, loss in losses.items()} if isinstance(losses, Mapping) else losses.clone()
