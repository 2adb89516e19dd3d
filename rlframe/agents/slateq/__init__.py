"""Slates of recommended documents by Q-learning: SlateQ; each name is imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.utils.lazy import import_name

if TYPE_CHECKING:
    from rlframe.agents.slateq.slateq import DEFAULT_CONFIG, SlateQConfig, SlateQTrainer
    from rlframe.agents.slateq.slateq_policy import SlateQTFPolicy, SlateQTorchPolicy

_NAMES = {
    "DEFAULT_CONFIG": "rlframe.agents.slateq.slateq",
    "SlateQConfig": "rlframe.agents.slateq.slateq",
    "SlateQTFPolicy": "rlframe.agents.slateq.slateq_policy",
    "SlateQTorchPolicy": "rlframe.agents.slateq.slateq_policy",
    "SlateQTrainer": "rlframe.agents.slateq.slateq",
}

__all__ = ["DEFAULT_CONFIG", "SlateQConfig", "SlateQTFPolicy", "SlateQTorchPolicy", "SlateQTrainer"]


def __getattr__(name: str) -> Any:
    return import_name(__name__, _NAMES, name)
