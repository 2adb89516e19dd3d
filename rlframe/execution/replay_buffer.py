"""RLlib's path to the replay buffers, which live in `rlframe.replay`; and these as Ray actors."""

from __future__ import annotations

from typing import Any

from rlframe.replay.per_policy import LocalReplayBuffer
from rlframe.replay.transition_buffers import PrioritizedReplayBuffer, ReplayBuffer

__all__ = ["LocalReplayBuffer", "PrioritizedReplayBuffer", "ReplayBuffer", "make_replay_actor_class"]


def make_replay_actor_class() -> Any:
    """Returns LocalReplayBuffer as a Ray actor class that takes no CPU; only this imports Ray."""
    import ray

    return ray.remote(num_cpus=0)(LocalReplayBuffer)


def __getattr__(name: str) -> Any:
    """Makes `ReplayActor` when it is first asked for, so that buffers can be used without Ray."""
    if name == "ReplayActor":
        actor_class = make_replay_actor_class()
        globals()[name] = actor_class
        return actor_class
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
