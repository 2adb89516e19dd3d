"""Explorations from their configs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlframe.exploration.exploration import Exploration
from rlframe.utils.from_config import accepted_arguments, from_config, known_types, resolve_type

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rlframe.exploration.exploration import ExplorationArgs


def make_exploration(config: Any, action_space: Any, **base: Unpack[ExplorationArgs]) -> Exploration:
    """Returns the exploration that a config describes.

    Args:
        config: A dict of `type` (a name of this package, a dotted path or a class) and options; or the type alone.
            None, or a dict without type, means StochasticSampling.
        action_space: The environment's action space.
        **base: See `Exploration`. A class of the user's own is only given what its constructor takes.

    Returns:
        The exploration.

    Raises:
        ConfigError: If the type or an option is unknown.
        UnsupportedSpaceException: If the exploration cannot serve the action space.
    """
    options = dict(config) if isinstance(config, Mapping) else {"type": config}
    kind = options.pop("type", None) or "StochasticSampling"
    cls = resolve_type(Exploration, kind)
    accepted = accepted_arguments(cls)
    given = {name: value for name, value in base.items() if accepted is None or name in accepted}
    made = from_config(Exploration, {"type": cls, **options}, action_space=action_space, **given)
    rng = base.get("rng")
    if rng is not None:
        made.rng = rng  # also of a class that does not know this argument
    return made


def available_explorations() -> list[str]:
    """Returns the names that `type` may be, sorted."""
    return known_types(Exploration)
