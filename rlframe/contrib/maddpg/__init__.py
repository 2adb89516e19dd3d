"""`rlframe.agents.maddpg` at RLlib's path."""

from __future__ import annotations

from typing import Any

from rlframe.agents import maddpg
from rlframe.agents.maddpg import DEFAULT_CONFIG, MADDPGTrainer

__all__ = ["DEFAULT_CONFIG", "MADDPGTrainer"]


def __getattr__(name: str) -> Any:
    return getattr(maddpg, name)
