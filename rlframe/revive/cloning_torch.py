"""Behaviour cloning of a trainer's policy, whatever its algorithm: its acting network learns what is in the data."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rlframe.revive.policy_model import Head

_BATCH = 256
_LEARNING_RATE = 1e-3
#: Log standard deviations that a cloned Gaussian has at least, so that it still tries something.
LEAST_LOG_STD = -1.5
_MOST_LOG_STD = 0.0


def clone_behaviour(
    policy: Any,
    obs: NDArray[np.float32],
    actions: NDArray[np.float32],
    head: Head,
    epochs: int,
    rng: np.random.Generator,
) -> float:
    """Has a policy's acting network learn the data's actions, and returns the mean squared error that is left.

        means:  Σ (μ(s) − a)²,   log standard deviations: half the log of the mean squared error, within limits

    Args:
        policy: A torch policy; its acting network's weights are changed.
        obs: What it sees. Float32 `[N, D]`.
        actions: What was done, each in [-1, 1]. Float32 `[N, A]`.
        head: What the network's outputs are.
        epochs: Passes over the data; 0 changes nothing.
        rng: Draws the minibatches.
    """
    inputs, targets = torch.from_numpy(obs), torch.from_numpy(actions)
    size = actions.shape[1]
    optimizer = torch.optim.Adam(_acting_weights(policy), _LEARNING_RATE)
    for _ in range(epochs):
        order = torch.from_numpy(rng.permutation(len(obs)))
        for rows in order.split(_BATCH):
            loss = _error(policy, inputs[rows], targets[rows], head, size).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        error = _error(policy, inputs, targets, head, size)
        if epochs and head == "gaussian":
            _set_log_std(policy, error.mean(0))
    policy._weights_changed()
    return float(error.mean())


def _error(policy: Any, obs: torch.Tensor, actions: torch.Tensor, head: Head, size: int) -> torch.Tensor:
    means = policy.dist_inputs(obs)[:, :size]
    return (torch.tanh(means) if head == "squashed" else means).sub(actions).square()


def _acting_weights(policy: Any) -> list[torch.Tensor]:
    """Returns the weights that distribution inputs depend on."""
    layers = {layer["name"] for layer in policy.numpy_spec()["outputs"]}
    named = policy.model.named_parameters()
    return [weight for name, weight in named if name.rpartition(".")[0] in layers]


def _set_log_std(policy: Any, error: torch.Tensor) -> None:
    for name, weight in policy.model.named_parameters():
        if name.endswith("free_log_std.log_std"):
            weight.copy_(error.clamp_min(1e-12).log().mul(0.5).clamp(LEAST_LOG_STD, _MOST_LOG_STD))
