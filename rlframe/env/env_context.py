"""What an environment's constructor is told: its own configuration, and which copy of it this is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class EnvContext(dict[str, Any]):
    """The `env_config` of a run, with the place of one environment copy as attributes.

    It is a plain dict for everything that only reads its configuration, so `config["size"]`, `config.get("size", 5)`
    and `**config` all work.

    Attributes:
        worker_index: The rollout worker that owns the environment; 0 is the process of the trainer.
        vector_index: The environment's slot within that worker, from 0.
        remote: Whether the environment lives in a process of its own.
        num_workers: Remote rollout workers of the run, or None where that is not known.
    """

    def __init__(
        self,
        env_config: Mapping[str, Any] | None = None,
        worker_index: int = 0,
        vector_index: int = 0,
        remote: bool = False,
        num_workers: int | None = None,
    ) -> None:
        """Copies `env_config` (not deeply) and notes the place of this environment."""
        super().__init__(env_config or {})
        self.worker_index = worker_index
        self.vector_index = vector_index
        self.remote = remote
        self.num_workers = num_workers

    def copy_with_overrides(
        self,
        env_config: Mapping[str, Any] | None = None,
        worker_index: int | None = None,
        vector_index: int | None = None,
        remote: bool | None = None,
        num_workers: int | None = None,
    ) -> EnvContext:
        """Returns a copy in which every argument that is not None replaces what this context holds."""
        return EnvContext(
            self if env_config is None else env_config,
            self.worker_index if worker_index is None else worker_index,
            self.vector_index if vector_index is None else vector_index,
            self.remote if remote is None else remote,
            self.num_workers if num_workers is None else num_workers,
        )

    def copy(self) -> EnvContext:
        """Returns a copy that is an `EnvContext` too."""
        return self.copy_with_overrides()

    def set_defaults(self, defaults: Mapping[str, Any]) -> None:
        """Adds the keys of `defaults` that the configuration does not have."""
        for key, value in defaults.items():
            self.setdefault(key, value)

    def __repr__(self) -> str:
        """Shows the configuration and the place."""
        return (
            f"EnvContext({dict.__repr__(self)}, worker_index={self.worker_index}, vector_index={self.vector_index}, "
            f"remote={self.remote}, num_workers={self.num_workers})"
        )
