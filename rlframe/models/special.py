"""Functions that NumPy lacks: of the Gamma family, for arrays of positive numbers, softmax, and Gumbel noise."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_SHIFT = 8  # Stirling's series below is exact to 1e-15 from here on


def log_gamma(x: NDArray[Any]) -> NDArray[np.float64]:
    """Returns log Γ(x) for x > 0, to about 1e-13.

    Γ(x) = Γ(x + 8) / (x (x + 1) … (x + 7)), and Stirling's series for the numerator.

    Args:
        x: Positive numbers of any shape.
    """
    x = np.asarray(x, np.float64)
    product = np.ones_like(x)
    for step in range(_SHIFT):
        product = product * (x + step)
    z = x + _SHIFT
    inverse = 1.0 / z
    square = inverse * inverse
    # Coefficients B_2k / (2k (2k − 1)) with the Bernoulli numbers B_2k.
    series = inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188))))
    result: NDArray[np.float64] = (z - 0.5) * np.log(z) - z + 0.5 * np.log(2.0 * np.pi) + series - np.log(product)
    return result


def digamma(x: NDArray[Any]) -> NDArray[np.float64]:
    """Returns ψ(x) = d/dx log Γ(x) for x > 0, to about 1e-13.

    ψ(x) = ψ(x + 8) − Σ 1 / (x + k), and the asymptotic series for the first term.

    Args:
        x: Positive numbers of any shape.
    """
    x = np.asarray(x, np.float64)
    shifted = np.zeros_like(x)
    for step in range(_SHIFT):
        shifted = shifted + 1.0 / (x + step)
    z = x + _SHIFT
    square = 1.0 / (z * z)
    # Coefficients B_2k / 2k.
    series = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square * (1 / 240 - square / 132))))
    result: NDArray[np.float64] = np.log(z) - 0.5 / z - series - shifted
    return result


def log_beta(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """Returns log B(a, b) = log Γ(a) + log Γ(b) − log Γ(a + b) for positive `a` and `b` of one shape."""
    result: NDArray[np.float64] = log_gamma(a) + log_gamma(b) - log_gamma(np.asarray(a) + np.asarray(b))
    return result


def softmax(logits: NDArray[Any]) -> NDArray[Any]:
    """Returns points on the simplex, along the last axis; finite for all finite logits."""
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    points: NDArray[Any] = weights / weights.sum(axis=-1, keepdims=True)
    return points


def gumbel(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[Any]:
    """Returns standard Gumbel noise, float32: −log E, E standard exponential."""
    return -np.log(rng.standard_exponential(shape)).astype(np.float32)
