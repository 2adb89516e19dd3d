"""Records what a policy does: whole episodes, with the probabilities of its actions, the same for the same seed."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rlframe.cli.algorithms import find_trainer_class
from rlframe.cli.evaluating import NoLogger, playing_config
from rlframe.cli.run_directory import RunSpec
from rlframe.data.columns import (
    ACTION_LOGP,
    ACTION_PROB,
    ACTIONS,
    DONES,
    EPS_ID,
    NEXT_OBS,
    OBS,
    REWARDS,
    TERMINATEDS,
    TRUNCATEDS,
    T,
)
from rlframe.data.sample_batch import SampleBatch
from rlframe.offline.datasets import make_writer
from rlframe.offline.io_context import IOContext
from rlframe.offline.output_writer import OutputWriter
from rlframe.offline.preparing import split_trajectories
from rlframe.utils.errors import ConfigError
from rlframe.utils.seeding import derive_seed

#: What a dataset has of what a policy's sampling gives.
_COLUMNS = (
    OBS, NEXT_OBS, ACTIONS, REWARDS, TERMINATEDS, TRUNCATEDS, DONES, EPS_ID, T, ACTION_PROB, ACTION_LOGP,
)  # fmt: skip


@dataclass
class Recording:
    """What was recorded.

    Attributes:
        rows: How many.
        returns: Undiscounted, of the episodes that end in it, in reward units of the environment.
    """

    rows: int = 0
    returns: list[float] = field(default_factory=list)
    _open: float | None = None  # what an episode has brought that goes on

    def take(self, batches: Iterable[SampleBatch], enough: int) -> Iterator[SampleBatch]:
        """Yields the episodes of batches until there are enough rows, and counts them."""
        for batch in batches:
            for part in split_trajectories(SampleBatch({name: batch[name] for name in _COLUMNS if name in batch})):
                if self.rows >= enough and self._open is None:
                    return
                self.rows += part.count
                self._open = (self._open or 0.0) + float(np.sum(part[REWARDS], dtype=np.float64))
                if part[DONES][-1]:
                    self.returns.append(self._open)
                    self._open = None
                yield part

    def to_dict(self) -> dict[str, Any]:
        """Returns numbers for a manifest."""
        mean = float(np.mean(self.returns)) if self.returns else None
        return {"rows": self.rows, "episodes": len(self.returns), "mean_return": mean}


class _Latest(OutputWriter):
    """Keeps what was written last; that there is a writer has policies tell the probabilities of their actions."""

    def __init__(self, ioctx: IOContext) -> None:
        del ioctx

    def write(self, sample_batch: Any) -> None:
        """Takes a batch, which the worker returns, too."""


class Recorder:
    """A trainer that samples episodes by the policy of any checkpoint, acting as in training.

    Args:
        spec: Algorithm, environment and config.
        seed: Of all that is drawn.
        purpose: With the same seed, another purpose gives other episodes.
    """

    def __init__(self, spec: RunSpec, seed: int, purpose: str) -> None:
        cls = find_trainer_class(spec.algorithm)
        own = {
            "seed": derive_seed(seed, "record", purpose), "output": _Latest, "batch_mode": "complete_episodes",
            "rollout_fragment_length": 1, "n_step": 1,
        }  # fmt: skip
        self._config = playing_config(spec.config, cls, own)
        self._logdir = logdir = tempfile.TemporaryDirectory()
        self._make: Any = lambda more: cls(
            config={**self._config, **more}, env=spec.env, logger_creator=lambda _: NoLogger(logdir.name)
        )
        self._trainers: dict[bool, tuple[Any, Mapping[str, Any]]] = {}

    def __enter__(self) -> Recorder:
        """Returns itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Closes environments, and removes what was written beside the dataset."""
        for trainer, _ in self._trainers.values():
            trainer.stop()
        self._logdir.cleanup()

    def mean_return(self, checkpoint: Path | None, episodes: int) -> float:
        """Returns the mean undiscounted return of episodes, the same ones for all checkpoints."""
        made = Recording()
        worker = self._loaded(checkpoint)
        while len(made.returns) < episodes:
            list(made.take([worker.sample()], 1 << 62))
        return float(np.mean(made.returns[:episodes]))

    def record(self, checkpoint: Path | None, rows: int, directory: Path, kind: str) -> Recording:
        """Writes whole episodes into a new directory, until there are enough rows.

        Args:
            checkpoint: Whose policy acts; None draws actions at random.
            rows: Rows that are enough.
            directory: Where they are written.
            kind: Format, one of `datasets.FORMATS`.
        """
        worker = self._loaded(checkpoint)
        if len(worker.policy_map) != 1:
            raise ConfigError(f"data make: got the policies {list(worker.policy_map)}, wanted one")
        writer = make_writer(
            str(directory), kind, bool(self._trainers[checkpoint is None][0].config["normalize_actions"])
        )
        made = Recording()
        while made.rows < rows:
            for episode in made.take([worker.sample()], rows):
                writer.write(episode)
        writer.close()  # type: ignore[attr-defined]  # each of these has it
        return made

    def _loaded(self, checkpoint: Path | None) -> Any:
        """Returns a worker that acts as a checkpoint's policy does, with the streams of this recorder's seed."""
        at_random = checkpoint is None
        if at_random not in self._trainers:
            trainer = self._make({"exploration_config": {"type": "Random"}} if at_random else {})
            self._trainers[at_random] = trainer, trainer.workers.local_worker().get_state(policies=False)
        trainer, fresh = self._trainers[at_random]
        worker = trainer.workers.local_worker()
        now = fresh
        if checkpoint is not None:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".*did not come back to where it was saved")
                trainer.restore(str(checkpoint))
            now = worker.get_state(policies=False)
        streams = {
            pid: {**streams, **{name: fresh["streams"][pid][name] for name in ("action_rng", "seed")}}
            for pid, streams in now["streams"].items()
        }
        worker.set_state({**now, "runner": fresh["runner"], "data": None, "streams": streams})
        return worker


__all__ = ["Recorder", "Recording"]
