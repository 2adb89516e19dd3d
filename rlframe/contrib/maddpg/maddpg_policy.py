"""`MADDPGTFPolicy` and `MADDPGTorchPolicy` at RLlib's path; each brings its framework when it is asked for."""

from __future__ import annotations

from typing import Any

from rlframe.agents import maddpg

__all__ = ["MADDPGTFPolicy", "MADDPGTorchPolicy"]  # noqa: F822 - below


def __getattr__(name: str) -> Any:
    return getattr(maddpg, name)
