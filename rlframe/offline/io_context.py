"""What a reader or writer of experience knows of the worker that it works for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rlframe.config.common import CommonConfig
from rlframe.offline.input_reader import InputReader, SampledInput
from rlframe.utils.seeding import derive_seed, entropy_seed


class IOContext:
    """Given to functions that make readers (`input`) and writers (`output`).

    Attributes:
        log_dir: The trainer's directory.
        config: The trainer's config; a dict whose keys that are not given have their defaults.
        worker_index: 0 for the worker in the driver, 1.. for remote ones.
        worker: The RolloutWorker; None outside of one.
    """

    def __init__(
        self,
        log_dir: str | None = None,
        config: Mapping[str, Any] | None = None,
        worker_index: int = 0,
        worker: Any = None,
    ) -> None:
        self.log_dir = log_dir or os.getcwd()
        self.config = CommonConfig.view(config or {})
        self.worker_index = worker_index
        self.worker = worker

    def default_sampler_input(self) -> InputReader:
        """Returns a reader of what the worker samples in its environments.

        Raises:
            EnvError: When it is read from, if there are none.
        """
        return SampledInput(self.worker)

    @property
    def input_config(self) -> dict[str, Any]:
        """The config's `input_config`, which readers of the user's own read their settings from."""
        return dict(self.config.input_config or {})

    def seed(self, purpose: str) -> int:
        """Returns a seed of this worker, by the config's `seed`; a fresh one where that is None."""
        base = entropy_seed() if self.config.seed is None else int(self.config.seed)
        return derive_seed(base, purpose, self.worker_index)


__all__ = ["IOContext"]
