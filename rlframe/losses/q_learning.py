"""Q-learning: temporal-difference errors and losses, per transition, as pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor


def huber(x: Tensor, delta: float = 1.0) -> Tensor:
    """Returns x²/2 where |x| ≤ delta, and delta·(|x| − delta/2) beyond.

    Args:
        x: Errors. Float, any shape.
        delta: Where the loss turns linear, and so the largest slope; above 0.

    Returns:
        Same shape.

    Source: Huber 1964, "Robust Estimation of a Location Parameter".
    """
    return ops.huber(x, delta)


def select_by_action(q: Tensor, actions: Tensor) -> Tensor:
    """Returns the entry of each row that belongs to its action.

    Args:
        q: Float `[B, A]`, or `[B, A, Z]` with atoms.
        actions: Integer `[B]`, each in `[0, A)`.

    Returns:
        `[B]`, or `[B, Z]`.
    """
    return ops.batched_index(q, actions)


def dueling(values: Tensor, advantages: Tensor) -> Tensor:
    """Returns Q-values V + A − mean_a A.

    Args:
        values: V. Float `[B, 1]`, or `[B, 1, Z]` with atoms.
        advantages: A. Float `[B, A]`, or `[B, A, Z]`.

    Returns:
        Shaped like `advantages`.

    Source: Wang et al. 2016, "Dueling Network Architectures for Deep Reinforcement Learning", eq. 9.
    """
    return values + advantages - ops.mean(advantages, axis=1, keepdims=True)


def dueling_heads(values: Tensor, advantages: Tensor, atoms: int) -> Tensor:
    """Returns `dueling` of heads' outputs in flat rows.

    Args:
        values: V. Float `[B, Z]`.
        advantages: A. Float `[B, A·Z]`.
        atoms: Z.

    Returns:
        Float `[B, A·Z]`.
    """
    if atoms == 1:
        return dueling(values, advantages)
    return ops.merge_last(dueling(values[:, None], ops.split_last(advantages, advantages.shape[1] // atoms)))


def expected_values(logits: Tensor, support: Tensor) -> Tensor:
    """Returns the means of distributions over atoms.

    Args:
        logits: Float `[B, A, Z]`.
        support: The atoms. Float `[Z]`.

    Returns:
        Float `[B, A]`.
    """
    return ops.sum(ops.softmax(logits) * support, axis=-1)


def signed_hyperbolic(x: Tensor, eps: float = 1e-3) -> Tensor:
    """Returns h(x) = sign(x) (√(|x| + 1) − 1) + ε x, which makes large values small. Float, shaped like `x`.

    The first term is computed as x / (√(|x| + 1) + 1), which does not cancel near 0.

    Source: Pohlen et al. 2018, "Observe and Look Further: Achieving Consistent Performance on Atari", section 3.2.
    """
    return x / (ops.sqrt(ops.abs(x) + 1.0) + 1.0) + eps * x


def signed_parabolic(x: Tensor, eps: float = 1e-3) -> Tensor:
    """Returns h⁻¹(x), the inverse of `signed_hyperbolic`. Float, shaped like `x`.

        h⁻¹(x) = sign(x) (z² − 1),   z = 2 y / (1 + √(1 + 4 ε y)),   y = |x| + 1 + ε

    z is the positive root of ε z² + z = y. The paper has it as (√(1 + 4 ε y) − 1) / 2ε, which cancels for small ε.

    Source: Pohlen et al. 2018, proposition A.2.
    """
    y = ops.abs(x) + (1.0 + eps)
    z = 2.0 * y / (1.0 + ops.sqrt(1.0 + 4.0 * eps * y))
    magnitude = ops.square(z) - 1.0
    return ops.where(x < 0, -magnitude, magnitude)


def rescaled_td_error(value_t: Tensor, rewards: Tensor, discounts: Tensor, value_tp1: Tensor, eps: float) -> Tensor:
    """Returns the temporal-difference errors of values that are h of returns; see `signed_hyperbolic`.

        δ_t = v_t − h( r_t + γ_t · h⁻¹(v_{t+n}) )

    Gradients flow through `value_t` only.

    Args:
        value_t: Values of the actions taken. Float `[B]`.
        rewards: Sum of n discounted rewards. Float `[B]`, in env reward units.
        discounts: γᵏ for k summed rewards where the episode went on, 0 where it terminated. Float `[B]`, in [0, 1].
        value_tp1: Values of what followed. Float `[B]`.
        eps: ε of h.

    Source: Kapturowski et al. 2019, section 2.3.
    """
    target = signed_hyperbolic(rewards + discounts * signed_parabolic(value_tp1, eps), eps)
    return value_t - ops.stop_gradient(target)


def double_q_td_error(
    q_t: Tensor, actions: Tensor, rewards: Tensor, discounts: Tensor, q_tp1_value: Tensor, q_tp1_selector: Tensor
) -> Tensor:
    """Returns the n-step double-Q temporal-difference error.

        δ_t = Q(s_t, a_t) − [ r_t + γ_t · Q⁻(s_{t+n}, argmax_a Q(s_{t+n}, a)) ]

    Gradients flow through `q_t` only. With the same tensor as value and selector this is plain Q-learning.

    Args:
        q_t: Online values at `obs`. Float `[B, A]`.
        actions: Actions taken at `obs`. Integer `[B]`, each in `[0, A)`.
        rewards: Sum of n discounted rewards. Float `[B]`, in env reward units.
        discounts: γᵏ for k summed rewards where the episode went on, 0 where it terminated. Float `[B]`, in [0, 1].
        q_tp1_value: Target-network values at `new_obs`, used to evaluate. Float `[B, A]`.
        q_tp1_selector: Online values at `new_obs`, used to select. Float `[B, A]`.

    Returns:
        One signed error per transition. Float `[B]`.

    Raises:
        ValueError: If leading dimensions are known to differ.

    Source: van Hasselt et al. 2016, "Deep Reinforcement Learning with Double Q-learning".
    That paper writes R_{t+1} for the reward called r_t here.
    """
    _check_rows(
        q_t=q_t,
        actions=actions,
        rewards=rewards,
        discounts=discounts,
        q_tp1_value=q_tp1_value,
        q_tp1_selector=q_tp1_selector,
    )
    best = select_by_action(ops.stop_gradient(q_tp1_value), ops.argmax(q_tp1_selector, axis=1))
    return select_by_action(q_t, actions) - ops.stop_gradient(rewards + discounts * best)


def project_distribution(probs: Tensor, rewards: Tensor, discounts: Tensor, atoms: Tensor) -> Tensor:
    """Returns the distribution of r + γ·z moved back onto the atoms z.

    Each moved atom is clipped to the support and its probability shared between its two neighbours by distance. No
    gradients flow.

    Args:
        probs: Probabilities of the atoms at `new_obs`, for the selected action. Float `[B, Z]`.
        rewards: Sum of discounted rewards. Float `[B]`, in env reward units.
        discounts: γᵏ, 0 where the episode terminated. Float `[B]`, in [0, 1].
        atoms: The support, evenly spaced and rising. Float `[Z]`, Z at least 2, in env reward units.

    Returns:
        Probabilities. Float `[B, Z]`; rows add up to what those of `probs` do.

    Raises:
        ValueError: If leading dimensions are known to differ, or `probs` and `atoms` have different Z.

    Source: Bellemare et al. 2017, "A Distributional Perspective on Reinforcement Learning", algorithm 1.
    """
    _check_rows(probs=probs, rewards=rewards, discounts=discounts)
    if _differ(probs.shape[1:], atoms.shape):
        raise ValueError(f"Got probs {tuple(probs.shape)} and atoms {tuple(atoms.shape)}; wanted [B, Z] and [Z].")
    last = atoms.shape[0] - 1
    spacing = (atoms[-1] - atoms[0]) / last
    moved = rewards[:, None] + discounts[:, None] * atoms
    places = ops.clip((moved - atoms[0]) / spacing, 0.0, float(last))  # in units of atoms
    return ops.linear_scatter(ops.stop_gradient(probs), places, last + 1)


def categorical_q_loss(logits_t: Tensor, target_probs: Tensor) -> Tensor:
    """Returns the cross-entropy between the target and the predicted distribution of the action taken.

        L_t = − Σ_z target(z) · log p(z | s_t, a_t)

    Gradients flow through `logits_t` only.

    Args:
        logits_t: Online logits at `obs` of the action taken (`select_by_action`). Float `[B, Z]`.
        target_probs: What `project_distribution` returned. Float `[B, Z]`.

    Returns:
        One loss per transition, at least the target's entropy. Float `[B]`.

    Raises:
        ValueError: If the shapes are known to differ.

    Source: Bellemare et al. 2017, "A Distributional Perspective on Reinforcement Learning", algorithm 1.
    """
    if _differ(logits_t.shape, target_probs.shape):
        raise ValueError(
            f"Got logits {tuple(logits_t.shape)} and target {tuple(target_probs.shape)}; wanted [B, Z] for both."
        )
    return -ops.sum(ops.stop_gradient(target_probs) * ops.log_softmax(logits_t), axis=1)


def surprise_of_target(loss: Tensor, target_probs: Tensor) -> Tensor:
    """Returns what of a cross-entropy learning can take away: the divergence KL(target ‖ prediction), no gradient.

        KL_t = L_t + Σ_z target(z) · log target(z)

    The target's own entropy is the rest. It is large where returns are wide, and says nothing of errors.

    Args:
        loss: What `categorical_q_loss` returned. Float `[B]`.
        target_probs: What it was given. Float `[B, Z]`.

    Returns:
        Float `[B]`, 0 or more.

    Source: Hessel et al. 2018, "Rainbow: Combining Improvements in Deep Reinforcement Learning", section "The
    Integrated Agent": priorities are KL losses.
    """
    probs = ops.stop_gradient(target_probs)
    # x log x is 0 at 0; the smallest normal number keeps log finite there.
    entropy = -ops.sum(probs * ops.log(ops.maximum(probs, 1.2e-38)), axis=1)
    return ops.maximum(ops.stop_gradient(loss) - entropy, 0.0)


def _differ(shape: Sequence[int | None], other: Sequence[int | None]) -> bool:
    """Returns whether shapes are known to differ; the lengths that a traced graph leaves open are None."""
    pairs = zip(shape, other, strict=False)
    return len(shape) != len(other) or any(a != b for a, b in pairs if a is not None and b is not None)


def _check_rows(**tensors: Tensor) -> None:
    """Raises ValueError where tensors are known to have different first dimensions."""
    known = {name: tuple(tensor.shape) for name, tensor in tensors.items() if tensor.shape[0] is not None}
    if len({shape[0] for shape in known.values()}) > 1:
        shapes = ", ".join(f"{name} {shape}" for name, shape in known.items())
        raise ValueError(f"Got leading dimensions that differ: {shapes}; wanted one number of transitions.")
