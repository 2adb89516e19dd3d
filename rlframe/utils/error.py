"""RLlib's path to the exceptions; they live in `rlframe.utils.errors`."""

from rlframe.utils.errors import (
    CheckpointError,
    ConfigError,
    EnvError,
    NonFiniteError,
    UnsupportedSpaceException,
    WorkerError,
)

__all__ = [
    "CheckpointError",
    "ConfigError",
    "EnvError",
    "NonFiniteError",
    "UnsupportedSpaceException",
    "WorkerError",
]
