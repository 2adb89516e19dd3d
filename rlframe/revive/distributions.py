"""Distributions of a node's values in the learned space: what its network gives, and what that says of values.

A node with several kinds of columns has a distribution for each, side by side: categories, discretised logistics,
normal ones. What is said once here computes with arrays (`numpy_math`) and with tensors (`rlframe.tensor.ops`).
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.models.distributions import NumpyDistribution, log_softmax
from rlframe.models.special import gumbel
from rlframe.revive.columns import Block, NodeScaler

__all__ = ["NodeDistribution", "NodeLayout", "divergence", "entropy", "log_prob", "mode", "numpy_math"]

#: Smallest and largest standard deviation, in the learned space, where ranges have the length 2.
STD_MIN, STD_MAX = 0.001, 0.5
_MIDDLE, _HALF = (0.5 * (math.log(STD_MAX) + sign * math.log(STD_MIN)) for sign in (1, -1))
_HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)
#: Smallest probability of a discrete value.
_LEAST = 1e-7

#: What `log_prob` and `mode` compute with where they are given arrays; `rlframe.tensor.ops` where tensors.
numpy_math = SimpleNamespace(
    exp=np.exp, log=np.log, tanh=np.tanh, square=np.square, maximum=np.maximum, where=np.where, log_softmax=log_softmax,
    sum=lambda x, axis: np.add.reduce(x, axis=axis), concat=lambda parts, axis: np.concatenate(parts, axis),
)  # fmt: skip


@dataclass(frozen=True)
class NodeLayout:
    """Which numbers of a network's output belong to which of a node's columns.

    Of a category there are as many logits as values, of a discrete column the mean and the raw width of a logistic, of
    `k` continuous columns `k` means, then `k` raw standard deviations.

    Attributes:
        blocks: Of the node's scaler.
        squash: Whether means pass through tanh; else they may be linear, and are clipped where they are used.
    """

    blocks: tuple[Block, ...]
    squash: bool = True

    @property
    def width(self) -> int:
        """Numbers of a value in the learned space."""
        return int(self.blocks[-1].where.stop)

    @property
    def inputs(self) -> int:
        """Numbers that the network gives."""
        return sum(_taken(block) for block in self.blocks)

    @functools.cached_property
    def parts(self) -> tuple[tuple[Block, slice], ...]:
        """The blocks, each with its place in the network's output."""
        ends = np.cumsum([_taken(block) for block in self.blocks]).tolist()
        return tuple((block, slice(end - _taken(block), end)) for block, end in zip(self.blocks, ends, strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Returns what `from_dict` makes the same layout of; JSON can hold it."""
        blocks = [[block.kind, block.where.start, block.where.stop, block.num, *block.columns] for block in self.blocks]
        return {"blocks": blocks, "squash": self.squash}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> NodeLayout:
        """Makes a layout of what `to_dict` returned."""
        blocks = (
            Block(kind, slice(start, stop), num, tuple(columns)) for kind, start, stop, num, *columns in saved["blocks"]
        )
        return cls(tuple(blocks), bool(saved["squash"]))

    @classmethod
    def of(cls, scaler: NodeScaler, *, squash: bool) -> NodeLayout:
        """Returns the layout of a node."""
        return cls(scaler.blocks, squash)


def _taken(block: Block) -> int:
    return block.num if block.kind == "category" else 2 * (1 if block.kind == "discrete" else block.num)


def _deviation(raw: Any, math_: Any) -> Any:
    """Returns the logarithm of a standard deviation between `STD_MIN` and `STD_MAX`."""
    return math_.tanh(raw) * _HALF + _MIDDLE


def raw_deviation(std: NDArray[Any]) -> NDArray[Any]:
    """Returns what `_deviation` gives these standard deviations for, within the limits."""
    share = (np.log(np.clip(std, STD_MIN, STD_MAX)) - _MIDDLE) / _HALF
    raw: NDArray[Any] = np.arctanh(np.clip(share, -0.99, 0.99))
    return raw


def _pair(layout: NodeLayout, params: Any, where: slice, math_: Any) -> tuple[Any, Any]:
    """Returns means, and logarithms of deviations, of a discrete or continuous block."""
    middle = (where.start + where.stop) // 2
    mean = params[..., where.start : middle]
    return (math_.tanh(mean) if layout.squash else mean), _deviation(params[..., middle : where.stop], math_)


def _sigmoid(x: Any, math_: Any) -> Any:
    return 0.5 + 0.5 * math_.tanh(0.5 * x)


def _logistic_log_prob(mean: Any, log_scale: Any, values: Any, num: int, math_: Any) -> Any:
    """Returns log-probabilities of values on a grid of `num` from −1 to 1: the logistic's mass nearest to each.

    Source: Salimans et al. 2017, "PixelCNN++", eq. 2.
    """
    half = 1.0 / max(num - 1, 1)
    scale = math_.exp(-log_scale)
    above = _sigmoid((values + half - mean) * scale, math_)
    below = _sigmoid((values - half - mean) * scale, math_)
    one, zero = above * 0.0 + 1.0, below * 0.0
    above = math_.where(values > 1.0 - half, one, above)
    below = math_.where(values < -1.0 + half, zero, below)
    return math_.log(math_.maximum(above - below, _LEAST))


def log_prob(layout: NodeLayout, params: Any, values: Any, math_: Any, mask: Any = None) -> Any:
    """Returns log-densities of values, float `[B]`.

    Args:
        layout: Of the node.
        params: What the network gave, float `[B, layout.inputs]`.
        values: In the learned space, float `[B, layout.width]`.
        math_: `numpy_math`, or `rlframe.tensor.ops`.
        mask: Which numbers count, float `[B, layout.width]`; None for all.
    """
    terms = []
    for block, where in layout.parts:
        here = values[..., block.where]
        if block.kind == "category":
            made = here * math_.log_softmax(params[..., where])
        else:
            mean, log_std = _pair(layout, params, where, math_)
            if block.kind == "discrete":
                made = _logistic_log_prob(mean, log_std, here, block.num, math_)
            else:
                made = -0.5 * math_.square((here - mean) * math_.exp(-log_std)) - log_std - _HALF_LOG_TAU
        terms.append(math_.sum(made if mask is None else made * mask[..., block.where], -1))
    return functools.reduce(operator.add, terms)


def entropy(layout: NodeLayout, params: Any, math_: Any) -> Any:
    """Returns entropies, float `[B]`; of discrete columns that of the logistic before it is cut into values."""
    terms = []
    for block, where in layout.parts:
        if block.kind == "category":
            logp = math_.log_softmax(params[..., where])
            terms.append(-math_.sum(math_.exp(logp) * logp, -1))
        else:
            own = 2.0 if block.kind == "discrete" else 0.5 + _HALF_LOG_TAU
            terms.append(math_.sum(_pair(layout, params, where, math_)[1] + own, -1))
    return functools.reduce(operator.add, terms)


def divergence(layout: NodeLayout, params: Any, others: Any, math_: Any) -> Any:
    """Returns KL(p‖q), float `[B]`, of the distributions that two outputs of a network say.

    Args:
        layout: Of the node.
        params: What the network gave for p, float `[B, layout.inputs]`.
        others: Likewise for q.
        math_: `numpy_math`, or `rlframe.tensor.ops`.
    """
    terms = []
    for block, where in layout.parts:
        if block.kind == "category":
            logp, logq = (math_.log_softmax(one[..., where]) for one in (params, others))
            terms.append(math_.sum(math_.exp(logp) * (logp - logq), -1))
            continue
        pairs = [_pair(layout, one, where, math_) for one in (params, others)]
        if block.kind == "discrete":
            for value in np.linspace(-1.0, 1.0, block.num).tolist():
                here = pairs[0][0] * 0.0 + value
                logp, logq = (_logistic_log_prob(*pair, here, block.num, math_) for pair in pairs)
                terms.append(math_.sum(math_.exp(logp) * (logp - logq), -1))
        else:
            (mean, log_std), (mean_q, log_std_q) = pairs
            spread = math_.exp(2.0 * (log_std - log_std_q)) + math_.square((mean - mean_q) * math_.exp(-log_std_q))
            terms.append(math_.sum(log_std_q - log_std + 0.5 * spread - 0.5, -1))
    return functools.reduce(operator.add, terms)


def mode(layout: NodeLayout, params: Any, math_: Any) -> Any:
    """Returns means, and logits' exponents for categories: a value in the learned space before it is rounded.

    Gradients flow through all of it. Float `[B, layout.width]`.
    """
    made = [
        math_.exp(math_.log_softmax(params[..., where]))
        if block.kind == "category"
        else _pair(layout, params, where, math_)[0]
        for block, where in layout.parts
    ]
    return made[0] if len(made) == 1 else math_.concat(made, -1)


class NodeDistribution(NumpyDistribution):
    """Values of a node in the learned space, `[..., width]`, from what its network gave.

    Args:
        inputs: Float `[..., layout.inputs]`.
        rng: Generator that `sample` draws from; may be None where nothing is sampled.
        layout: Of the node.
    """

    def __init__(self, inputs: NDArray[Any], rng: np.random.Generator | None = None, *, layout: NodeLayout) -> None:
        super().__init__(inputs, rng)
        self.layout = layout

    def deterministic_sample(self) -> NDArray[Any]:
        """Returns the most likely values; categories as one-hot, discrete ones on their grid."""
        self.last_sample = self._on_grid(mode(self.layout, self.inputs, numpy_math))
        return self.last_sample  # type: ignore[no-any-return]  # an array

    def sample(self) -> NDArray[Any]:
        """Draws values; categories as one-hot, discrete ones on their grid."""
        rng = self._generator()
        drawn: list[NDArray[Any]] = []
        for block, where in self.layout.parts:
            params = self.inputs[..., where]
            if block.kind == "category":
                drawn.append(params + gumbel(rng, params.shape))
                continue
            mean, log_std = _pair(self.layout, self.inputs, where, numpy_math)
            noise = (
                rng.logistic(size=mean.shape).astype(np.float32)
                if block.kind == "discrete"
                else rng.standard_normal(mean.shape, np.float32)
            )
            drawn.append(mean + np.exp(log_std) * noise)
        self.last_sample = self._on_grid(drawn[0] if len(drawn) == 1 else np.concatenate(drawn, -1))
        return self.last_sample  # type: ignore[no-any-return]  # an array

    def _on_grid(self, values: NDArray[Any]) -> NDArray[Any]:
        """Rounds values of discrete columns, and makes the largest number of a category the one that is 1."""
        for block in self.layout.blocks:
            here = values[..., block.where]
            if block.kind == "category":
                values[..., block.where] = here.argmax(-1)[..., None] == np.arange(block.num)
            elif block.kind == "discrete":
                steps = max(block.num - 1, 1) / 2
                values[..., block.where] = np.rint((np.clip(here, -1, 1) + 1) * steps) / steps - 1
        return values

    def std(self) -> NDArray[Any]:
        """Returns standard deviations of continuous columns, float `[..., columns]`."""
        found = [
            np.exp(_pair(self.layout, self.inputs, where, numpy_math)[1])
            for block, where in self.layout.parts
            if block.kind == "continuous"
        ]
        return found[0] if found else np.zeros((*self.inputs.shape[:-1], 0), np.float32)

    def logp(self, x: Any) -> NDArray[Any]:
        """Returns log-densities of values `[..., width]`, float `[...]`."""
        made: NDArray[Any] = log_prob(self.layout, self.inputs, np.asarray(x), numpy_math)
        return made

    def entropy(self) -> NDArray[Any]:
        """Returns entropies, float `[...]`; see `entropy`."""
        made: NDArray[Any] = entropy(self.layout, self.inputs, numpy_math)
        return made


def linear_start(
    layout: NodeLayout, inputs: NDArray[Any], values: NDArray[Any], mask: NDArray[Any]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Returns the linear map, weights `[layout.inputs, D]` and biases, whose modes are nearest to logged values.

    Least squares for means, residual deviations, and frequencies for categories: what a network need not learn.

    Args:
        layout: Of the node.
        inputs: Float `[N, D]`.
        values: In the learned space, float `[N, layout.width]`.
        mask: Which numbers were logged, bool or float `[N, layout.width]`.
    """
    weights = np.zeros((layout.inputs, inputs.shape[1] + 1))
    seen = np.concatenate([inputs, np.ones((len(inputs), 1))], 1).astype(np.float64)
    for block, where in layout.parts:
        if block.kind == "category":
            shares = (values[:, block.where] * mask[:, block.where]).sum(0) + 1.0
            weights[where, -1] = np.log(shares / shares.sum())
            continue
        middle = (where.start + where.stop) // 2
        for place, row in enumerate(range(where.start, middle)):
            column = block.where.start + place
            known = mask[:, column] > 0
            target = values[known, column].astype(np.float64)
            wanted = np.arctanh(np.clip(target, -0.98, 0.98)) if layout.squash else target
            weights[row] = _least_squares(seen[known], wanted)
            mean = seen[known] @ weights[row]
            error = (np.tanh(mean) if layout.squash else mean) - target
            weights[middle + place, -1] = raw_deviation(np.sqrt(np.mean(np.square(error)) if known.any() else 1.0))
    return weights[:, :-1].astype(np.float32), weights[:, -1].astype(np.float32)


def _least_squares(seen: NDArray[Any], wanted: NDArray[Any]) -> NDArray[Any]:
    """Returns the coefficients of ridge regression; the ridge only settles what the data leave open."""
    if not len(seen):
        return np.zeros(seen.shape[1])
    scale = np.sqrt(np.mean(np.square(seen), 0)) + 1e-12
    ridge = 1e-5 * math.sqrt(len(seen)) * np.eye(seen.shape[1])
    lhs = np.concatenate([seen / scale, ridge])
    solved: NDArray[Any] = np.linalg.lstsq(lhs, np.concatenate([wanted, np.zeros(seen.shape[1])]), rcond=None)[0]
    found: NDArray[Any] = solved / scale
    return found


def concatenated(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Returns arrays side by side; one alone as it is."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts, -1)
