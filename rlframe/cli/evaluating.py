"""Playing a checkpoint back: fresh episodes, no learning."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlframe.cli.algorithms import find_trainer_class
from rlframe.cli.run_directory import CHECKPOINTS, RUN_FILE, RunSpec, describe_checkpoint, restore_newest
from rlframe.cli.training import warn
from rlframe.env.adapt import adapt_env
from rlframe.env.env_context import EnvContext
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


@dataclass(frozen=True)
class PlayOptions:
    """How episodes are played.

    Attributes:
        seed: Episode i is reset with a seed derived from this and i; None takes fresh ones. What the policy draws
            while it explores goes by the checkpoint.
        explore: Whether actions are drawn as in training, not chosen greedily.
        render: Whether the environment shows itself.
        max_steps: Env steps after which an episode is cut; None takes the config's `horizon`.
    """

    seed: int | None = None
    explore: bool = False
    render: bool = False
    max_steps: int | None = None


@contextlib.contextmanager
def loaded_trainer(path: Path) -> Iterator[tuple[Any, RunSpec, Path]]:
    """Yields the trainer of a run or checkpoint, with what it was asked for and the checkpoint; stops it at the end.

    Args:
        path: A run directory, whose newest loadable checkpoint is taken, or a checkpoint.

    Raises:
        CheckpointError: If there is none, or it cannot be loaded.
    """
    if not path.is_dir():
        raise CheckpointError(f"there is no directory {str(path)!r}")
    spec, is_run = _find_spec(path)
    trainer_class = find_trainer_class(spec.algorithm)
    config = {**_without_code(spec.config), **_known(_PLAYING, trainer_class)}
    with tempfile.TemporaryDirectory() as logdir:
        trainer = trainer_class(config=config, env=spec.env, logger_creator=lambda _: _NoLogger(logdir))
        try:
            if is_run:
                checkpoint = restore_newest(trainer, path, warn)
            else:
                trainer.restore(str(path))
                checkpoint = path
            yield trainer, spec, checkpoint
        finally:
            trainer.stop()


def play(trainer: Any, count: int, options: PlayOptions) -> Iterator[PlayedEpisode]:
    """Yields episodes played by a trainer's policy in an environment of their own.

    Args:
        trainer: With weights.
        count: How many episodes.
        options: How they are played.

    Raises:
        EnvError: If the environment cannot be made, or cannot be shown.
    """
    env = _make_env(trainer, render=options.render)
    try:
        for episode in range(count):
            seed = None if options.seed is None else derive_seed(options.seed, episode)
            yield _play_one(trainer, env, seed, options)
    finally:
        env.close()


def _play_one(trainer: Any, env: Any, seed: int | None, options: PlayOptions) -> PlayedEpisode:
    horizon = options.max_steps or trainer.config.get("horizon")
    observation, _ = env.reset(seed=seed)
    policy = trainer.get_policy()
    state = policy.get_initial_state()
    action, reward, total, length = None, 0.0, 0.0, 0
    while True:
        action, state, _ = trainer.compute_single_action(
            observation, state or None, prev_action=action, prev_reward=reward, explore=options.explore, full_fetch=True
        )
        observation, reward, terminated, truncated, _ = env.step(action)
        total += float(reward)
        length += 1
        if terminated or truncated:
            return PlayedEpisode(total, length, "terminated" if terminated else "truncated")
        if horizon is not None and length >= horizon:
            return PlayedEpisode(total, length, "horizon")


def _make_env(trainer: Any, *, render: bool) -> Any:
    config = dict(trainer.config.get("env_config") or {})
    if render:
        config["render_mode"] = "human"
    try:
        return adapt_env(trainer.env_creator(EnvContext(config)))
    except EnvError:
        raise
    except Exception as error:
        hint = " (--render passes render_mode='human' to it)" if render else ""
        raise EnvError(f"the environment cannot be made{hint}: {type(error).__name__}: {error}") from error


def _find_spec(path: Path) -> tuple[RunSpec, bool]:
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


def _known(config: Mapping[str, Any], trainer_class: Any) -> dict[str, Any]:
    defaults = trainer_class.get_default_config()
    return {key: value for key, value in config.items() if key in defaults}


@dataclasses.dataclass
class _NoLogger:
    """Keeps a trainer from making a directory of its own."""

    logdir: str

    def on_result(self, result: Mapping[str, Any]) -> None:
        """Drops the result."""

    def flush(self) -> None:
        """Nothing is waiting."""

    def close(self) -> None:
        """Nothing is open."""
