"""What policies are made of: optimisers by name, what a loss returns, and components with a state of their own."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rlframe.data.sample_batch import SampleBatch
from rlframe.policy.policy import Component as Component
from rlframe.tensor.ops import Tensor
from rlframe.utils.errors import ConfigError

#: What an optimiser, or a target network, has where the policy has one model.
WHOLE_MODEL = ("model",)
#: The model's weights in two parts: what its outputs depend on, and what nothing but its values depends on.
MODEL_OUTPUTS, MODEL_VALUES = ("model outputs",), ("model values",)


@dataclass(frozen=True)
class OptimizerSpec:
    """An optimiser over some of a policy's networks and variables; which one, the subclass says.

    Attributes:
        networks: Their names; "encoder" is that of the observations, where there is one. A policy around the one model
            that the config describes has `WHOLE_MODEL`, or `MODEL_OUTPUTS` and `MODEL_VALUES` apart.
        lr: Learning rate.
        eps: ε, what is added to the root of the mean of squared gradients.
        grad_clip: Largest global norm of the gradient; None does not clip.
        clip_each: Largest norm of the gradient of each weight array by itself; None does not clip. The global norm
            before is reported as "<optimiser>_gnorm", with an infinite limit, too.
        every: Steps once in so many updates; `policy.due(name)` tells the loss.
        follows_schedule: Whether `set_learning_rate` sets its rate; it is constant otherwise.
        limits_for_sums: Whether `grad_clip`, and RMSProp's ε, are for the gradient of the sum over the rows, of
            which the loss is the mean; see `RowSums`.
    """

    networks: tuple[str, ...]
    lr: float
    eps: float = 1e-8
    grad_clip: float | None = None
    clip_each: float | None = None
    every: int = 1
    follows_schedule: bool = True
    limits_for_sums: bool = False


@dataclass(frozen=True)
class AdamSpec(OptimizerSpec):
    """Adam; see `OptimizerSpec`."""


@dataclass(frozen=True)
class RMSPropSpec(OptimizerSpec):
    """RMSProp with the arithmetic of PyTorch's in both frameworks: ε is added outside of the root.

    Attributes:
        decay: Share of the old mean of squared gradients that is kept.
        momentum: Share of the last step that is done again.
    """

    decay: float = 0.99
    momentum: float = 0.0


@dataclass(frozen=True)
class FusedGradients:
    """What fills the gradients of a class's own loss without autograd; for speed alone.

    Attributes:
        classes: "module:class" by framework; `class.of(policy)` gives it (see `policy.torch.fused`), or None where
            networks are not made for it. `class.of(policy, names)` that of a curvature, with the names of weights.
        methods: What it stands for: it is not used where a class below the one that names it replaces one of them.
            Statistics may read what the model's last pass left.
    """

    classes: Mapping[str, str]
    methods: tuple[str, ...] = ("loss", "keep", "extra_grad_info")

    def find(self, policy: Any) -> Any:
        """Returns the class for a policy's framework; None where there is none, or its methods are replaced."""
        path = self.classes.get(policy.framework)
        line = type(policy).__mro__
        named = next(place for place, cls in enumerate(line) if any(value is self for value in vars(cls).values()))
        if path is None or any(name in vars(cls) for cls in line[:named] for name in self.methods):
            return None
        module, _, name = path.partition(":")
        return getattr(importlib.import_module(module), name)


@dataclass(frozen=True)
class LossOutput:
    """What a loss returns. Where there is one scalar alone it adds and multiplies like that, with the same report.

    Attributes:
        losses: A scalar for each optimiser that is to step, by the optimiser's name, and for networks that the policy
            steps itself, by the name in `own_steps`; or one scalar, for all there is.
        stats: Scalars for the learner's report. With several devices, means over rows.
        per_row: One number for each row of the batch, such as `td_error`. `[B]`.
    """

    losses: Mapping[str, Tensor] | Tensor
    stats: Mapping[str, Tensor] = field(default_factory=dict)
    per_row: Mapping[str, Tensor] = field(default_factory=dict)

    def _with(self, change: Callable[[Tensor], Tensor]) -> LossOutput:
        if isinstance(self.losses, Mapping):
            raise TypeError(
                f"got arithmetic on a LossOutput with the losses of {sorted(self.losses)}; wanted "
                "dataclasses.replace(output, losses={**output.losses, name: ...})"
            )
        return replace(self, losses=change(self.losses))

    def __add__(self, other: Any) -> LossOutput:
        return self._with(lambda loss: loss + other)

    def __sub__(self, other: Any) -> LossOutput:
        return self._with(lambda loss: loss - other)

    def __mul__(self, other: Any) -> LossOutput:
        return self._with(lambda loss: loss * other)

    def __truediv__(self, other: Any) -> LossOutput:
        return self._with(lambda loss: loss / other)

    __radd__, __rmul__ = __add__, __mul__

    def __getattr__(self, name: str) -> Any:
        """Returns what the scalar has under a name, such as `backward`, where there is one scalar alone."""
        losses = self.__dict__.get("losses")
        if name.startswith("__") or losses is None or isinstance(losses, Mapping):
            raise AttributeError(
                f"LossOutput has no {name!r}; its losses are output.losses[name] for each of {sorted(losses or {})}"
            )
        return getattr(losses, name)


class RandomStream(Component):
    """A random stream of a policy's own, in NumPy, which its state has.

    Args:
        generator: The stream.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self.generator = generator

    def get_state(self) -> dict[str, Any]:
        """Returns where the stream is."""
        return {"rng": self.generator.bit_generator.state}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes what `get_state` returned."""
        self.generator.bit_generator.state = state["rng"]


def check_optimizers(
    owner: str,
    networks: Sequence[str],
    optimizers: Mapping[str, OptimizerSpec],
    own_steps: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Raises a ConfigError unless each network has exactly one optimiser, or is stepped by the policy itself.

    Args:
        owner: The policy's class, for the message.
        networks: Names of networks and variables.
        optimizers: Optimisers by name.
        own_steps: Networks that the policy steps itself, by the name of their loss.
    """
    named = [network for spec in optimizers.values() for network in spec.networks]
    named += [network for stepped in (own_steps or {}).values() for network in stepped]
    without = sorted(set(networks) - set(named))
    if without:
        raise ConfigError(
            f"{owner}: the networks {without} have no optimiser, so they would never learn; got the optimisers "
            f"{ {name: list(spec.networks) for name, spec in optimizers.items()} }, wanted each of {sorted(networks)} "
            "in one of them: name them in optimizers()"
        )
    unknown = sorted(set(named) - set(networks) - {"encoder"})
    twice = sorted({name for name in named if named.count(name) > 1})
    if unknown or twice:
        raise ConfigError(
            f"{owner}: optimizers() names {f'{unknown}, which are no networks' if unknown else f'{twice} twice'}; "
            f"wanted each of {sorted(networks)} once"
        )


class SecondOrder(Protocol):
    """A loss and a divergence on one batch, as functions of one vector of weights; see `LearningPolicy.second_order`.

    P is how many numbers the weights have.
    """

    def begin(self, samples: SampleBatch, curvature_samples: SampleBatch | None = None) -> None:
        """Takes a batch, in arrays; divergences are from the distributions of the weights as they are now.

        Args:
            samples: What loss and divergence are computed of.
            curvature_samples: What `divergence_product` is computed of: the same, or some of the rows; None where it
                is not asked for, and the batch's own distributions stay.
        """

    def get_flat(self) -> NDArray[np.float32]:
        """Returns a copy of the weights. Float32 `[P]`."""

    def set_flat(self, vector: NDArray[Any]) -> None:
        """Sets the weights from `[P]` numbers."""

    def loss_and_gradient(self) -> tuple[float, NDArray[np.float32]]:
        """Returns the loss, and its gradient by the weights, float32 `[P]`.

        Raises:
            NonFiniteError: If the loss is NaN or infinite; the message names what was first to be so.
        """

    def divergence_product(self, vector: NDArray[Any]) -> NDArray[np.float32]:
        """Returns H v, with H the second derivatives of the divergence at the weights that the batch began with.

        There the divergence has its minimum, 0, and H is the Fisher matrix of the distributions, averaged over rows.
        """

    def loss_product(self, vector: NDArray[Any]) -> NDArray[np.float32]:
        """Returns H v, with H the second derivatives of the loss at the weights as they are. Float32 `[P]`."""

    def gradients_of(self, vector: NDArray[Any]) -> list[NDArray[np.float32] | None]:
        """Returns a gradient `[P]` as `apply_gradients` of the policy takes it."""

    def loss_and_divergence(self) -> tuple[float, float]:
        """Returns loss and divergence of the weights as they are; keeps what the loss reports."""


def kept(policy: Any, output: LossOutput) -> Any:
    """Has a policy keep what a loss reports, and returns its losses as RLlib's functions did: a scalar, or a list."""
    policy.keep_output(output)
    return list(output.losses.values()) if isinstance(output.losses, Mapping) else output.losses


def merge_kept(
    kept: Sequence[Mapping[str, Any]], weights: Sequence[Any], concat: Callable[[list[Any]], Any]
) -> dict[str, Any]:
    """Returns what the losses of several shares of a batch kept, as the loss of the whole batch would have.

    Args:
        kept: By share: scalars that are means over rows, and tensors with one entry per row.
        weights: Each share's part of the rows.
        concat: Joins tensors along their rows.
    """
    merged = {}
    for name in kept[0]:
        parts = [share[name] for share in kept]
        if len(parts[0].shape) == 0:
            merged[name] = sum(part * weight for part, weight in zip(parts, weights, strict=True))
        else:
            merged[name] = concat(parts)
    return merged
