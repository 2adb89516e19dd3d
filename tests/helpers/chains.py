"""Layers run once, for the numbers that they should give."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlframe.models.actor import bind_chain
from rlframe.models.actor_layers import FloatArray, Weights


def run_chain(
    layers: Sequence[Any],
    weights: Weights,
    x: FloatArray,
    rng: np.random.Generator | None = None,
) -> FloatArray:
    """Returns what `layers` make of `x`; binds anew at each call, see `bind_chain` for hot paths.

    Args:
        layers: Layers or their specs, in the order in which data passes.
        weights: Float32 arrays by name.
        x: Inputs. Float32 `[B, D]`.
        rng: Generator for noisy layers; None switches their noise off.
    """
    for step in bind_chain(layers, weights, rng):
        x = step(x)
    return x
