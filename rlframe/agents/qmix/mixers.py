"""RLlib's path to `QMixer` and `VDNMixer`; they live in `qmix_torch_model.py`, and are imported when asked for."""

from __future__ import annotations

from typing import Any

_NAMES = ("QMixer", "VDNMixer")


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rlframe.agents.qmix import qmix_torch_model

    return getattr(qmix_torch_model, name)
