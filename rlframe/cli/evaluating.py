"""Playing a checkpoint back: fresh episodes, no learning."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlframe.cli.algorithms import find_trainer_class
from rlframe.cli.play_options import PlayOptions
from rlframe.cli.recording import Camera, describe_failure
from rlframe.cli.run_directory import (
    BEST,
    CHECKPOINTS,
    RUN_FILE,
    RunSpec,
    describe_checkpoint,
    directory_of,
    restore_newest,
)
from rlframe.cli.training import warn
from rlframe.cli.trust import checked_names
from rlframe.env.adapt import adapt_env
from rlframe.env.env_context import EnvContext
from rlframe.env.wrappers.atari_wrappers import with_preprocessing
from rlframe.utils.errors import CheckpointError, EnvError
from rlframe.utils.seeding import derive_seed

#: One process, one environment, nothing that learns or evaluates beside it.
_PLAYING = {
    "num_workers": 0,
    "sample_async": False,
    "vectorized_env": False,
    "num_envs_per_worker": 1,
    "evaluation_interval": None,
    "evaluation_num_workers": 0,
    "num_gpus": 0,
    "output": None,
}


@dataclass(frozen=True)
class PlayedEpisode:
    """One episode.

    Attributes:
        total: Undiscounted return, in reward units of the environment.
        length: Env steps.
        ended: "terminated", "truncated" or "horizon".
    """

    total: float
    length: int
    ended: str


@contextlib.contextmanager
def loaded_trainer(path: Path, *, best: bool = False, trust: bool = False) -> Iterator[tuple[Any, RunSpec, Path]]:
    """Yields the trainer of a run or checkpoint, with what it was asked for and the checkpoint; stops it at the end.

    Args:
        path: A run directory, whose newest loadable checkpoint is taken, or a checkpoint.
        best: Whether of a run the checkpoint with the best mean return is taken.
        trust: Whether classes that it names are imported, though they are not built in.

    Raises:
        CheckpointError: If there is none, it cannot be loaded, or it names what is not trusted.
    """
    path = directory_of(path)
    if not path.is_dir():
        raise CheckpointError(f"there is no directory {str(path)!r}; wanted a run's, or a checkpoint's")
    spec, is_run = find_spec(path)
    with checked_names(spec, path, trust=trust):
        trainer_class = find_trainer_class(spec.algorithm)
        config = playing_config(spec.config, trainer_class)
        with tempfile.TemporaryDirectory() as logdir:
            trainer = trainer_class(config=config, env=spec.env, logger_creator=lambda _: NoLogger(logdir))
            try:
                with warnings.catch_warnings():
                    # Where training's environments were is of no use here: episodes are played in one of their own.
                    warnings.filterwarnings("ignore", message=".*did not come back to where it was saved")
                    checkpoint = _restore(trainer, path, is_run=is_run, best=best)
                yield trainer, spec, checkpoint
            finally:
                trainer.stop()


def _restore(trainer: Any, path: Path, *, is_run: bool, best: bool) -> Path:
    """Restores a trainer, and returns the checkpoint."""
    if is_run:
        return restore_newest(trainer, path, warn, BEST if best else CHECKPOINTS)
    trainer.restore(str(path))
    return path


def play(trainer: Any, count: int, options: PlayOptions) -> Iterator[PlayedEpisode]:
    """Yields episodes played by a trainer's policy in an environment of their own.

    Args:
        trainer: With weights.
        count: How many episodes.
        options: How they are played.

    Raises:
        ConfigError: If a video or frame cannot be written.
        EnvError: If the environment cannot be made, or cannot be shown.
    """
    env = _make_env(trainer, options.render_mode)
    try:
        for episode in range(count):
            seed = None if options.seed is None else derive_seed(options.seed, episode)
            with Camera(env, episode, options) as camera:
                played = _play_one(trainer, env, seed, options, camera)
            yield played
    finally:
        env.close()


def _play_one(trainer: Any, env: Any, seed: int | None, options: PlayOptions, camera: Camera) -> PlayedEpisode:
    horizon = options.max_steps or trainer.config.get("horizon")
    with _told("reset()"):
        observation, _ = env.reset(seed=seed)
    actor = trainer.make_actor(explore=options.explore)
    reward, total, length = None, 0.0, 0
    camera.take()
    while True:
        action = actor.act(observation, reward)
        with _told("step()"):
            observation, reward, terminated, truncated, _ = env.step(action)
        camera.take()
        total += float(reward)
        length += 1
        if terminated or truncated:
            return PlayedEpisode(total, length, "terminated" if terminated else "truncated")
        if horizon is not None and length >= horizon:
            return PlayedEpisode(total, length, "horizon")


@contextlib.contextmanager
def _told(call: str) -> Iterator[None]:
    """Turns whatever an environment raises into one message."""
    try:
        yield
    except EnvError:
        raise
    except Exception as error:
        raise EnvError(f"{call} of the environment raised {describe_failure(error)}") from error


def _make_env(trainer: Any, render_mode: str | None) -> Any:
    config = dict(trainer.config.get("env_config") or {})
    if render_mode is not None:
        config["render_mode"] = render_mode
    try:
        # As for evaluation: whole games, not lives.
        creator = with_preprocessing(trainer.env_creator, {**trainer.config, "in_evaluation": True})
        if creator is None:
            raise EnvError("the checkpoint's trainer has no environment to play in")
        return adapt_env(creator(EnvContext(config)))
    except EnvError:
        raise
    except Exception as error:
        hint = f" (render_mode={render_mode!r} was passed to it)" if render_mode is not None else ""
        raise EnvError(f"the environment cannot be made{hint}: {type(error).__name__}: {error}") from error


def find_spec(path: Path) -> tuple[RunSpec, bool]:
    """Returns what was asked for, and whether `path` is a run directory."""
    if (path / RUN_FILE).exists() or (path / CHECKPOINTS).is_dir():
        return RunSpec.read(path), True
    run = path.resolve().parent.parent
    if (run / RUN_FILE).exists():
        spec, framework = RunSpec.read(run), describe_checkpoint(path).config.get("framework")
        # The run's own config has more in it than the checkpoint's; but a checkpoint may have been converted since.
        return (dataclasses.replace(spec, config={**spec.config, "framework": framework}) if framework else spec), False
    return describe_checkpoint(path), False


def _without_code(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a config without callbacks: a checkpoint names them as text, and playing calls none."""
    return {key: value for key, value in config.items() if key not in ("callbacks", "env")}


def playing_config(
    config: Mapping[str, Any], trainer_class: Any, more: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Returns a run's config for one process that only acts.

    Args:
        config: The run's.
        trainer_class: Its trainer class, whose keys those are that are set.
        more: Keys that are set beside.
    """
    return {**_without_code(config), **_known({**_PLAYING, **(more or {})}, trainer_class)}


def _known(config: Mapping[str, Any], trainer_class: Any) -> dict[str, Any]:
    defaults = trainer_class.get_default_config()
    return {key: value for key, value in config.items() if key in defaults}


@dataclasses.dataclass
class NoLogger:
    """Keeps a trainer from making a directory of its own."""

    logdir: str

    def on_result(self, result: Mapping[str, Any]) -> None:
        """Drops the result."""

    def flush(self) -> None:
        """Nothing is waiting."""

    def close(self) -> None:
        """Nothing is open."""
