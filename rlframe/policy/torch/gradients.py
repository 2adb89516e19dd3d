"""Gradients that a policy computes in one place and applies in another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from rlframe.data.sample_batch import SampleBatch
from rlframe.utils.threads import blas_in_one_thread


def compute_gradients(policy: Any, samples: SampleBatch) -> tuple[list[Any], dict[str, Any]]:
    """Returns the gradients of one batch as arrays, one per parameter (None where unused), and the info."""
    policy._refuse_gradients_apart()
    custom = policy._before_learning(samples)
    batch = policy._batch_to_learn(samples)
    stats: dict[str, Any] = {"allreduce_latency": 0.0}
    stepping: set[int] = set()
    with blas_in_one_thread():
        for number, indices in enumerate(policy._backward(batch, samples, stats)):
            if number:
                raise ValueError(
                    f"{type(policy).__name__} learns in phases, each of which steps before the next: it has no "
                    "gradients to compute apart; call learn_on_batch()"
                )
            stepping.update(indices)
    stats.update(policy.extra_grad_info(batch))
    others = _parameters_of_others(policy, stepping)
    grads = [
        None if p.grad is None or id(p) in others else p.grad.detach().cpu().numpy().copy()
        for p in policy.model.parameters()
    ]
    return grads, policy._learn_result(stats, policy.extra_compute_grad_fetches(), custom)


def apply_gradients(policy: Any, gradients: Sequence[Any]) -> None:
    """Applies gradients as `compute_gradients` returns them; optimisers that none of them is for do not step."""
    given = set()
    for parameter, gradient in zip(policy.model.parameters(), gradients, strict=True):
        if gradient is None:
            continue
        given.add(id(parameter))
        # A copy: arrays from the object store are read-only, which torch warns of.
        tensor = torch.tensor(np.asarray(gradient), device=policy.device)
        if parameter.grad is None:
            parameter.grad = tensor.clone()
        else:
            parameter.grad.copy_(tensor)
    for optimizer in policy._optimizers:
        several = len(policy.optimizer_specs) > 1
        if not several or any(id(parameter) in given for parameter in policy._parameters_of(optimizer)):
            optimizer.step()


def _parameters_of_others(policy: Any, stepping: set[int]) -> set[int]:
    """Returns the identities of parameters whose optimisers do not step: their gradients are of earlier updates."""
    if len(policy._optimizers) == 1:
        return set()
    others = [optimizer for index, optimizer in enumerate(policy._optimizers) if index not in stepping]
    return {id(parameter) for optimizer in others for parameter in policy._parameters_of(optimizer)}
