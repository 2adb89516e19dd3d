"""Networks, action distributions and preprocessors. Names load on first use, not with the package."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlframe.models.action_dist import ActionDistribution
    from rlframe.models.catalog import MODEL_DEFAULTS, ModelCatalog
    from rlframe.models.modelv2 import ModelV2
    from rlframe.models.preprocessors import Preprocessor

_HOMES = {
    "ActionDistribution": "rlframe.models.action_dist",
    "MODEL_DEFAULTS": "rlframe.models.catalog",
    "ModelCatalog": "rlframe.models.catalog",
    "ModelV2": "rlframe.models.modelv2",
    "Preprocessor": "rlframe.models.preprocessors",
}

__all__ = ["MODEL_DEFAULTS", "ActionDistribution", "ModelCatalog", "ModelV2", "Preprocessor"]


def __getattr__(name: str) -> Any:
    """Loads a public name from its home."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """Returns the public names."""
    return sorted(__all__)
