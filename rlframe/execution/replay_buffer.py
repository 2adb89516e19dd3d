"""RLlib's path to the replay buffers, and these as Ray actors.

`LocalReplayBuffer` is that of `rlframe.replay`; programs that derive from it, and its `ReplayBuffer` and
`PrioritizedReplayBuffer`, keep items as RLlib's did: see `rlframe.rllib1x.item_buffers`, where a table finds them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlframe.replay.per_policy import LocalReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer

__all__ = ["LocalReplayBuffer", "PrioritizedReplayBuffer", "ReplayBuffer", "make_replay_actor_class"]


def make_replay_actor_class() -> Any:
    """Returns the LocalReplayBuffer of plans as a Ray actor class that takes no CPU; only this imports Ray."""
    import ray

    from rlframe.replay import per_policy

    return ray.remote(num_cpus=0)(per_policy.LocalReplayBuffer)


def __getattr__(name: str) -> Any:
    """Makes `ReplayActor` when it is first asked for, so that buffers can be used without Ray."""
    if name == "ReplayActor":
        actor_class = make_replay_actor_class()
        globals()[name] = actor_class
        return actor_class
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
