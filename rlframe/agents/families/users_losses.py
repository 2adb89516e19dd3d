"""What losses of users' own leave behind, where the statistics of RLlib's policies looked for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlframe.policy.parts import LossOutput, kept
from rlframe.tensor import ops


def kept_by_users_loss(policy: Any, names: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Returns the statistics that a loss for RLlib 1.x kept.

    They are in `model.tower_stats` since RLlib 1.5; before, they were attributes of the policy, or of an object that
    the loss put in place of `policy.loss`. What is callable is no statistic, but a method of the program's.

    Args:
        policy: The policy, of which the loss has run.
        names: By statistic, the names under which it may be, the likeliest last; attributes may begin with `_`.
    """
    in_model, of_loss = getattr(policy.model, "tower_stats", {}), vars(policy).get("loss")
    found: dict[str, Any] = {}
    for statistic, candidates in names.items():
        for name in candidates:
            attributes = [getattr(policy, attribute, None) for attribute in (name, f"_{name}")]
            for value in (in_model.get(name), getattr(of_loss, name, None), *attributes):
                if value is not None and not callable(value):
                    found[statistic] = value
    return found


def parts_left(policy: Any, losses: list[Any], *names: str) -> list[Any]:
    """Returns what a user's loss left under these names, where that is the copy of one of RLlib's that returns a sum.

    Args:
        policy: The policy, of which the loss has run.
        losses: What it returned.
        names: Attributes of the policy: a loss each.
    """
    left = vars(policy)
    return [left[name] for name in names] if len(losses) == 1 and all(name in left for name in names) else losses


def means_kept(policy: Any, *names: str) -> dict[str, Any]:
    """Returns means of what a loss for RLlib 1.x kept under these names; of a list, such as critics' losses, of all.

    Of Q-values, kept as `q_t`, they are mean, largest and smallest.

    Args:
        policy: The policy, of which the loss has run.
        *names: Statistics, each kept under its own name; see `kept_by_users_loss`.
    """
    found = kept_by_users_loss(policy, {name: (name,) for name in (*names, "q_t")})
    q_t = found.pop("q_t", None)
    means = {name: _mean(value) for name, value in found.items()}
    return means if q_t is None else means | {"mean_q": ops.mean(q_t), "max_q": ops.max(q_t), "min_q": ops.min(q_t)}


def _mean(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return sum(_mean(each) for each in value) / len(value)
    return value if isinstance(value, (int, float)) else ops.mean(value)


def called_as_in_rllib(
    loss: Callable[..., LossOutput],
    arguments: tuple[Any, Any, Any, Any],
    names: Mapping[str, tuple[str, ...]],
    prefix: str = "_",
) -> Any:
    """Has a policy keep what a built-in loss reports, for losses of a program's own that call RLlib's functions.

    Their statistics functions look for it under RLlib's names: in `model.tower_stats`, and as attributes of the policy,
    with their gradients. In TensorFlow the batch may be one of arrays, as in RLlib's eager mode.

    Args:
        loss: `fn(policy, model, dist_class, train_batch)`.
        arguments: Its arguments.
        names: As `kept_by_users_loss` takes them.
        prefix: What the attributes' names begin with.

    Returns:
        Its losses as RLlib's functions did: a scalar, or a list.
    """
    policy, model, dist_class, train_batch = arguments
    as_tensors = getattr(policy, "as_tensors", None)
    output = loss(policy, model, dist_class, train_batch if as_tensors is None else as_tensors(train_batch))
    left = {name: output.stats[stat] for stat, given in names.items() if stat in output.stats for name in given}
    model.tower_stats.update(left)
    vars(policy).update({f"{prefix}{name}": value for name, value in left.items()})
    return kept(policy, output)
