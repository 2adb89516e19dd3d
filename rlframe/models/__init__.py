"""Networks, action distributions and preprocessors. Names load on first use, not with the package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.utils.lazy import import_name

if TYPE_CHECKING:
    from rlframe.models.action_dist import ActionDistribution
    from rlframe.models.catalog import MODEL_DEFAULTS, ModelCatalog
    from rlframe.models.modelv2 import ModelV2
    from rlframe.models.preprocessors import Preprocessor

_NAMES = {
    "ActionDistribution": "rlframe.models.action_dist",
    "MODEL_DEFAULTS": "rlframe.models.catalog",
    "ModelCatalog": "rlframe.models.catalog",
    "ModelV2": "rlframe.models.modelv2",
    "Preprocessor": "rlframe.models.preprocessors",
}

__all__ = ["MODEL_DEFAULTS", "ActionDistribution", "ModelCatalog", "ModelV2", "Preprocessor"]


def __getattr__(name: str) -> Any:
    return import_name(__name__, _NAMES, name)


def __dir__() -> list[str]:
    """Returns the public names."""
    return sorted(__all__)
