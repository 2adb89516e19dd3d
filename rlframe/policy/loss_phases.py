"""What a loss returned, made losses by optimiser: in phases, by their names, as a model's `custom_loss` has them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from rlframe.models.modelv2 import ModelV2
from rlframe.policy.parts import LossOutput
from rlframe.policy.users_code import Losses
from rlframe.tensor.ops import Tensor

#: Phases of one batch after which a loss is taken to go on for ever.
MOST_PHASES = 10_000


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
