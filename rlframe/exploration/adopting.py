"""Explorations of a policy's own that do not derive from `Exploration`."""

from __future__ import annotations

from typing import Any

from rlframe.exploration.exploration import Exploration


def adopt(exploration: Any) -> None:
    """Has an exploration of a policy's own, which need not derive from `Exploration`, say what samplers ask of it.

    RLlib's samplers called its methods alone; those that it lacks do nothing. Others are left as they are.

    Args:
        exploration: What a policy keeps as `policy.exploration`.
    """
    if isinstance(exploration, Exploration):
        return
    hooks = ("on_episode_start", "on_episode_end")
    exploration.has_episode_hooks = any(hasattr(exploration, name) for name in hooks)
    exploration.has_postprocessing = hasattr(exploration, "postprocess_trajectory")
    for name in (*hooks, "before_compute_actions", "restore_weights"):
        if not hasattr(exploration, name):
            setattr(exploration, name, _nothing)


def _nothing(*_: Any, **__: Any) -> None:
    """Does nothing."""
