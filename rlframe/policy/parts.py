"""What policies are made of: optimisers by name, what a loss returns, and components with a state of their own."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rlframe.data.sample_batch import SampleBatch
from rlframe.models.modelv2 import ModelV2
from rlframe.policy.policy import Component as Component
from rlframe.policy.users_code import Losses
from rlframe.tensor.ops import Tensor
from rlframe.utils.errors import ConfigError

#: What an optimiser, or a target network, has where the policy has one model.
WHOLE_MODEL = ("model",)
#: The model's weights in two parts: what its outputs depend on, and what nothing but its values depends on.
MODEL_OUTPUTS, MODEL_VALUES = ("model outputs",), ("model values",)
#: Phases of one batch after which a loss is taken to go on for ever.
MOST_PHASES = 10_000


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
    """

    classes: Mapping[str, str]
    methods: tuple[str, ...] = ("loss", "keep")

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


def phases(policy: Any, made: Any, batch: Any) -> Iterator[dict[int, Tensor]]:
    """Yields what a loss returned, `{index of optimiser: scalar}`, one phase after the other.

    A loss that returns has one phase. One that is a generator has as many as it yields: the optimisers of each step
    before it goes on.

    Raises:
        ValueError: If losses and optimisers do not fit together, or the phases do not end.
    """
    if not inspect.isgenerator(made):
        yield by_optimizer(policy, made, batch)
        return
    for number, part in enumerate(made):
        if number >= MOST_PHASES:
            raise ValueError(
                f"{type(policy).__name__}.loss() yielded {MOST_PHASES} phases for one batch and goes on; wanted a loss "
                "that ends: leave its loop, or return"
            )
        yield by_optimizer(policy, part, batch)


def kept(policy: Any, output: LossOutput) -> Any:
    """Has a policy keep what a loss reports, and returns its losses as RLlib's functions did: a scalar, or a list."""
    policy.keep_output(output)
    return list(output.losses.values()) if isinstance(output.losses, Mapping) else output.losses


def keep_reports(policy: Any, made: Any) -> None:
    """Has the policy keep what a loss reports that nothing is learned from; of one in phases, of its first."""
    output = next(made, None) if inspect.isgenerator(made) else made
    if isinstance(output, LossOutput):
        policy.keep_output(output)


def by_optimizer(policy: Any, made: Any, batch: Any) -> dict[int, Tensor]:
    """Returns losses by the index of their optimiser, of what a loss returned or yielded; keeps what it reports.

    Raises:
        ValueError: If a loss has no optimiser, or names none there is.
    """
    own = list(policy.own_steps)
    if not isinstance(made, LossOutput):
        every = _changed(policy, made, batch, len(own) + len(policy._optimizers))
        return dict(enumerate(every[len(own) :]))
    policy.keep_output(made)
    names = list(policy.optimizer_specs)
    if not isinstance(made.losses, Mapping) and not own and len(policy._optimizers) <= 1:
        return dict(enumerate(with_custom_loss(policy.model, [made.losses], batch)))
    losses = _by_name(policy, made, batch)
    return {index: losses[name] for index, name in enumerate(names) if name in losses and policy.due(name)}


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


def own_loss(policy: Any, name: str, made: Any, batch: Any) -> Tensor:
    """Returns the loss of networks that a policy steps itself, of what its loss returned; keeps what it reports.

    Args:
        policy: The policy.
        name: Name of the loss in `policy.own_steps`, or of an optimiser.
        made: What its loss returned: a `LossOutput`, or a list with the losses of `own_steps` before those of the
            optimisers.
        batch: What the loss was computed of.

    Raises:
        ValueError: If there is no such loss.
    """
    own = list(policy.own_steps)
    if not isinstance(made, LossOutput):
        names = [*own, *policy.optimizer_specs]
        return _changed(policy, made, batch, len(own) + len(policy._optimizers))[names.index(name)]
    policy.keep_output(made)
    losses = _by_name(policy, made, batch)
    if name not in losses:
        raise ValueError(
            f"{type(policy).__name__}.loss() returned losses for {sorted(losses)}; wanted one for {name!r} where "
            f"policy.due({name!r})"
        )
    return losses[name]


def _by_name(policy: Any, made: LossOutput, batch: Any) -> dict[str, Tensor]:
    """Returns losses by their names, as the model's `custom_loss` would have them."""
    names = [*policy.own_steps, *policy.optimizer_specs]
    if not isinstance(made.losses, Mapping):
        raise ValueError(
            f"{type(policy).__name__}.loss() returned one loss that names no optimiser; wanted a dict with some of "
            f"{names}: LossOutput({{{names[0]!r}: ...}})"
        )
    unknown = sorted(set(made.losses) - set(names))
    if unknown or not made.losses:
        raise ValueError(
            f"{type(policy).__name__}.loss() returned losses for {unknown or 'no optimiser'}; wanted some of {names}, "
            "the names in optimizers()"
        )
    changed = _changed(policy, list(made.losses.values()), batch, len(made.losses))
    return dict(zip(made.losses, changed, strict=True))


def _changed(policy: Any, losses: Any, batch: Any, count: int) -> list[Tensor]:
    """Returns losses, a scalar or several, as the model's `custom_loss` would have them; as many as are wanted."""
    made: list[Tensor] = policy.losses_in_turn(with_custom_loss(policy.model, losses, batch))
    if len(made) != count:
        raise ValueError(f"got {len(made)} losses for {count} optimisers; wanted one for each")
    return made


def with_custom_loss(model: Any, losses: Any, batch: Any) -> list[Tensor]:
    """Returns losses, a scalar or several, as the model's `custom_loss` would have them, if it has one."""
    every = list(losses) if isinstance(losses, (list, tuple)) else [losses]
    if getattr(model.custom_loss, "__func__", None) is ModelV2.custom_loss:
        return every
    changed = model.custom_loss(Losses(every), batch)
    return list(changed) if isinstance(changed, (list, tuple)) else [changed]
