"""Checks of what replay buffers are made with."""

from __future__ import annotations

from rlframe.replay.sequence_store import check_lengths


def check_range(low: int, **arguments: float | None) -> None:
    """Raises ValueError naming the first argument that is given and below `low`."""
    for name, value in arguments.items():
        if value is not None and not value >= low:
            raise ValueError(f"{name} must be at least {low}, got {value}")


def check_mode(replay_mode: str, sequence_length: int, burn_in: int) -> None:
    """Raises ValueError for modes of replay that do not exist, or not together."""
    if replay_mode not in ("independent", "lockstep"):
        raise ValueError(f"replay_mode must be 'independent' or 'lockstep', got {replay_mode!r}")
    check_range(1, replay_sequence_length=sequence_length)
    check_lengths(sequence_length, burn_in)
    if sequence_length > 1 and replay_mode == "lockstep":
        raise ValueError(
            f"replay_sequence_length={sequence_length} with replay_mode='lockstep': joint steps are single rows; use "
            "1, or 'independent'"
        )
