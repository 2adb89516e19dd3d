"""Decisions from logs alone: an environment learned along a graph that the user draws, and a policy trained in it.

`graph` and `columns` are what the user says of the data, `data` the data, `functions` the user's own code.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlframe.revive.policy_model import PolicyModel
    from rlframe.revive.server import ReviveServer
    from rlframe.revive.venv_model import VirtualEnv

_MODULES = {"PolicyModel": "policy_model", "ReviveServer": "server", "VirtualEnv": "venv_model"}

__all__ = ["PolicyModel", "ReviveServer", "VirtualEnv"]


def __getattr__(name: str) -> Any:
    """Imports what is asked for."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
