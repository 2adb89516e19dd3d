"""The keys of `replay_buffer_config`."""

from collections.abc import Iterator, Mapping
from typing import Any

from rlframe.config.declaration import Section, Variants, option

REPLAY_BUFFERS = Variants()
"""The declared replay buffers by the name that stands in `type`."""


@REPLAY_BUFFERS.add("LocalReplayBuffer")
class LocalReplayBufferConfig(Section):
    """The replay buffer in the trainer's own process.

    What it stores and how it samples is said by the algorithm's own keys: prioritized_replay, learning_starts, ….
    """

    type: Any = option("LocalReplayBuffer", "Class of buffer: a name, a dotted path or a class.")
    capacity: int = option(50_000, "Rows kept; the oldest go first.", unit="env steps", low=1)


@REPLAY_BUFFERS.add("EpisodeReplayBuffer")
class EpisodeReplayBufferConfig(Section):
    """A buffer of whole episodes (or of the sequences that fragments and max_seq_len cut them into)."""

    type: Any = option("EpisodeReplayBuffer", "Class of buffer: a name, a dotted path or a class.")
    capacity: int = option(1000, "Episodes kept of each policy; the oldest go first.", unit="episodes", low=1)


def faults_of_rows(replay_buffer_config: Mapping[Any, Any] | None) -> Iterator[str]:
    """Yields what is wrong with the buffer of an algorithm that replays single rows."""
    kind = (replay_buffer_config or {}).get("type")
    if getattr(kind, "__name__", kind) == "EpisodeReplayBuffer":
        yield "replay_buffer_config.type='EpisodeReplayBuffer' is for whole episodes; leave it at 'LocalReplayBuffer'"
