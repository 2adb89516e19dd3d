"""The natural gradient step: conjugate gradients on Fisher-vector products, and a line search that may roll back."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.policy.parts import SecondOrder

Vector = NDArray[np.float64]


def conjugate_gradient(
    product: Callable[[Vector], NDArray[Any]], target: Vector, iterations: int, tolerance: float = 0.0
) -> tuple[Vector, Vector]:
    """Returns x with A x ≈ b for a symmetric A that is positive definite, and the residual b − A x.

    Args:
        product: v ↦ A v.
        target: b. Float `[P]`.
        iterations: Products to take at most.
        tolerance: It is near enough where |b − A x|² is below.

    Returns:
        Two float64 `[P]`. Where rounding makes A seem not positive definite, x is what was found until then.

    Source: Nocedal and Wright 2006, "Numerical Optimization", algorithm 5.2.
    """
    solution, residual = np.zeros_like(target), target.copy()
    direction, size = residual.copy(), float(residual @ residual)
    for _ in range(iterations):
        if size <= tolerance:
            break
        along = np.asarray(product(direction), np.float64)
        curvature = float(direction @ along)
        if not curvature > 0.0:
            break
        step = size / curvature
        solution += step * direction
        residual -= step * along
        before, size = size, float(residual @ residual)
        direction = residual + (size / before) * direction
    return solution, residual


@dataclass(frozen=True)
class TrustRegion:
    """How far a step may go, and how it is found; the attributes are config keys of TRPO.

    Attributes:
        max_kl: δ, the largest mean divergence from the policy before the step, in nats.
        cg_iters: Fisher-vector products at most.
        cg_damping: Added to the Fisher matrix's diagonal.
        cg_residual_tolerance: Squared length of the residual at which the direction is near enough.
        line_search_steps: Lengths to try at most.
        line_search_shrink: Each of them by the one before.
    """

    max_kl: float
    cg_iters: int
    cg_damping: float
    cg_residual_tolerance: float
    line_search_steps: int
    line_search_shrink: float

    def step(self, problem: SecondOrder) -> dict[str, float]:
        """Moves the weights so that the loss falls and the divergence is at most δ, or not at all.

            x ≈ (F + λ I)⁻¹ (−g),   θ' = θ + βʲ √(2 δ / xᵀ(F + λ I) x) · x   with the smallest j that serves

        Args:
            problem: Loss and divergence on a batch that has begun.

        Returns:
            Statistics: `kl` in nats; `policy_loss` behind the step; `surrogate_gain`, by which the loss fell;
            `line_search_shrinks`, which is j; `step_accepted`, 1, or 0 where the weights are exactly what they were.

        Source: Schulman et al. 2015, "Trust Region Policy Optimization", section 5 and appendix C.
        """
        old, (loss, gradient) = problem.get_flat(), problem.loss_and_gradient()
        direction, residual = conjugate_gradient(
            lambda v: problem.divergence_product(v) + self.cg_damping * v,
            -gradient.astype(np.float64),
            self.cg_iters,
            self.cg_residual_tolerance,
        )
        curvature = float(direction @ (-gradient - residual))  # (F + λ I) x is the target less the residual
        longest = math.sqrt(2.0 * self.max_kl / curvature) if curvature > 0.0 else 0.0
        for tried in range(self.line_search_steps if longest > 0.0 and math.isfinite(longest) else 0):
            problem.set_flat(old + self.line_search_shrink**tried * longest * direction)
            moved_loss, kl = problem.loss_and_divergence()
            if moved_loss < loss and kl <= self.max_kl:  # neither holds for NaN
                return _stats(kl, moved_loss, loss - moved_loss, tried, accepted=True)
        problem.set_flat(old)
        problem.loss_and_divergence()  # what the loss reports is of the weights that stay
        return _stats(0.0, loss, 0.0, self.line_search_steps, accepted=False)


def _stats(kl: float, loss: float, gain: float, shrinks: int, *, accepted: bool) -> dict[str, float]:
    return {
        "kl": kl,
        "policy_loss": loss,
        "surrogate_gain": gain,
        "line_search_shrinks": float(shrinks),
        "step_accepted": float(accepted),
    }
