"""Learners in several processes that average their gradients: a group of `torch.distributed`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn


def join(address: str, rank: int, world_size: int, backend: str, timeout_s: float) -> None:
    """Joins a group of learners, and leaves the one that this process was in; returns when all have joined.

    Args:
        address: `tcp://host:port` of the learner with rank 0.
        rank: Number of this learner, from 0.
        world_size: Number of learners.
        backend: "gloo" (CPU) or "nccl" (GPU).
        timeout_s: Seconds that one waits for the others, when joining and at each step.
    """
    leave()
    dist.init_process_group(
        backend, init_method=address, rank=rank, world_size=world_size, timeout=timedelta(seconds=timeout_s)
    )


def leave() -> None:
    """Leaves the group, if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def average_gradients(parameters: list[nn.Parameter], flat: torch.Tensor | None) -> None:
    """Replaces gradients by their mean over all learners of the group.

    Args:
        parameters: What has gradients; those without one count as zero.
        flat: The buffer that holds all these gradients, where there is one: then one message does.
    """
    world_size = dist.get_world_size()
    if flat is not None:
        dist.all_reduce(flat)
        flat.div_(world_size)
        return
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    waiting = [dist.all_reduce(parameter.grad, async_op=True) for parameter in parameters]
    for parameter, work in zip(parameters, waiting, strict=True):
        work.wait()
        gradient: Any = parameter.grad
        gradient.div_(world_size)


def smallest(number: int) -> int:
    """Returns the smallest of the numbers that the learners of the group call this with."""
    if not dist.is_initialized():
        return number
    tensor = torch.tensor([number])
    if dist.get_backend() == "nccl":
        tensor = tensor.cuda()
    dist.all_reduce(tensor, op=dist.ReduceOp.MIN)
    return int(tensor.item())
