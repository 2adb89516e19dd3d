"""Gradients by autograd, over several learners or devices, too; those computed in one place and applied in another."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlframe.data.sample_batch import SampleBatch
from rlframe.policy.loss_phases import by_optimizer
from rlframe.policy.torch import distributed
from rlframe.policy.torch.data_parallel import DataParallel
from rlframe.policy.torch.flat import step_flushing_denormals
from rlframe.policy.torch.flat_optimizers import FlatOptimizer
from rlframe.policy.torch.own_gradients import GradientsInPlace, update_by_own_gradients
from rlframe.policy.users_code import method
from rlframe.utils.metrics.learner_info import LEARNER_STATS_KEY
from rlframe.utils.threads import blas_in_one_thread


class TorchGradients:
    """How a `TorchPolicy` goes by autograd, and what it does with gradients beside stepping on them at once."""

    _replicas: DataParallel | None
    #: Whether a program's own code may differentiate losses again, to apply gradients its way.
    _keeps_graph = False
    #: Whether gradients are computed within a learner step, whose callbacks have been called.
    _is_updating = False
    #: Indices of the optimisers that the gradients computed last are for.
    _computed_for: tuple[int, ...] = ()

    def _update_by_own_gradients(self, samples: SampleBatch) -> tuple[dict[str, Any], dict[str, Any]]:
        return update_by_own_gradients(self, samples)

    def _fill_gradients(
        self: Any, losses: Mapping[int, list[tuple[Tensor, float]]], samples: SampleBatch, stats: dict[str, Any]
    ) -> None:
        """Fills the gradients of some optimisers' parameters, of shares of their losses with weights.

        Raises:
            ValueError: If none of the policy's parameters requires gradients.
        """
        several = len(self._optimizers) > 1 or bool(self.own_steps)
        for index, shares in losses.items():
            optimizer = self._optimizers[index]
            flat = self._flat_of(optimizer)
            if flat is None:
                optimizer.zero_grad()
            else:
                flat.zero_grad()
            # What is another optimiser's stays as it is: a loss may reach networks that it is not to change.
            own = [p for p in self._parameters_of(optimizer) if p.requires_grad]
            if not own and self._learns_something():
                continue
            for loss, weight in shares:
                self.check_finite_loss(loss, index, samples)
                part = loss if weight == 1.0 else loss * weight
                part.backward(retain_graph=self._keeps_graph or index < max(losses), inputs=own if several else None)
            if self.distributed_world_size:
                stats["allreduce_latency"] += self._average_gradients(optimizer)
            stats.update(self.extra_grad_process(optimizer, shares[0][0]))

    def _learns_something(self: Any) -> bool:
        """Returns True.

        Raises:
            ValueError: If a program has frozen all that the policy's optimisers step.
        """
        if any(p.requires_grad for optimizer in self._optimizers for p in self._parameters_of(optimizer)):
            return True
        raise ValueError(
            f"{type(self).__name__} is to learn, and none of its parameters requires gradients: leave the policy out "
            "of multiagent.policies_to_train, or set requires_grad on what shall be learned"
        )

    def _parameters_of(self: Any, optimizer: torch.optim.Optimizer) -> list[Any]:
        """Returns the model's parameters that an optimiser steps."""
        if isinstance(optimizer, FlatOptimizer):
            return optimizer.flat.members()
        return [parameter for group in optimizer.param_groups for parameter in group["params"]]

    def _average_gradients(self: Any, optimizer: torch.optim.Optimizer) -> float:
        """Replaces the gradients by their mean over the learners of the group; returns the seconds it took."""
        started = time.perf_counter()
        flat = self._flat_of(optimizer)
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        whole = flat is not None and (isinstance(optimizer, FlatOptimizer) or len(self._optimizers) == 1)
        distributed.average_gradients(parameters, flat.grad if whole and flat is not None else None)
        return time.perf_counter() - started

    def agreed_minimum(self: Any, number: int) -> int:
        """Returns the smallest of the numbers that this policy's siblings in other processes call this with."""
        return distributed.smallest(number) if self.distributed_world_size else number

    def _losses(self: Any, batch: SampleBatch) -> dict[int, Tensor]:
        """Returns the losses of a batch of tensors by the index of their optimiser."""
        return by_optimizer(self, method(self, "loss")(self.model, self.dist_class, batch), batch)

    def _make_replicas(self: Any) -> DataParallel:
        replicas: DataParallel | None = self._replicas
        if replicas is None:
            replicas = self._replicas = DataParallel(self, self.devices)
            self.model_gpu_towers = [modules["online"] for modules in replicas.modules]
        return replicas


def compute_gradients(policy: Any, samples: SampleBatch) -> tuple[list[Any], dict[str, Any]]:
    """Returns the gradients of one batch as arrays, one per parameter (None where unused), and the info."""
    policy._refuse_gradients_apart()
    custom = {} if policy._is_updating else policy._before_learning(samples)
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
    policy._computed_for = tuple(sorted(stepping))
    stats.update(policy.extra_grad_info(batch))
    others = _parameters_of_others(policy, stepping)
    grads = [
        None if p.grad is None or id(p) in others else p.grad.detach().cpu().numpy().copy()
        for p in policy.model.parameters()
    ]
    if policy._is_updating:  # the learner step tells of the model
        return grads, {LEARNER_STATS_KEY: stats, **policy.extra_compute_grad_fetches()}
    return grads, policy._learn_result(stats, policy.extra_compute_grad_fetches(), custom)


def apply_gradients(policy: Any, gradients: Sequence[Any] | GradientsInPlace) -> None:
    """Applies gradients as `compute_gradients` returns them; optimisers that none of them is for do not step."""
    if isinstance(gradients, GradientsInPlace):
        for index in gradients.stepping:
            step_flushing_denormals(policy._optimizers[index])
        return
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
            step_flushing_denormals(optimizer)


def _parameters_of_others(policy: Any, stepping: set[int]) -> set[int]:
    """Returns the identities of parameters whose optimisers do not step: their gradients are of earlier updates."""
    if len(policy._optimizers) == 1:
        return set()
    others = [optimizer for index, optimizer in enumerate(policy._optimizers) if index not in stepping]
    return {id(parameter) for optimizer in others for parameter in policy._parameters_of(optimizer)}


def clip_each(parameters: Sequence[Any], limit: float) -> Tensor:
    """Scales each parameter's gradient, where it has one, to an L2 norm of at most `limit`.

    Returns:
        The global norm before, a scalar.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norms = torch.stack([gradient.norm() for gradient in gradients])
    for gradient, norm in zip(gradients, norms, strict=True):
        gradient.mul_((limit / norm).clamp(max=1.0))
    whole: Tensor = norms.norm()
    return whole
