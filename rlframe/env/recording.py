"""Videos of episodes as they are sampled, by `record_env`."""

from __future__ import annotations

import functools
import inspect
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rlframe.env.env_context import EnvContext
from rlframe.utils.errors import ConfigError, EnvError
from rlframe.utils.video import Video, frames_per_s

logger = logging.getLogger(__name__)

_PICTURES = "rgb_array"


def with_recording(
    creator: Callable[[EnvContext], Any],
    record_env: bool | str | None,
    log_dir: str | None,
    *,
    prefix: str,
    by_id: bool,
) -> Callable[[EnvContext], Any]:
    """Returns a creator whose environments are filmed.

    Args:
        creator: Makes an environment.
        record_env: A directory; one that is not absolute is below the trainer's. True and "" are that itself.
        log_dir: The trainer's directory.
        prefix: What the names of files begin with.
        by_id: Whether `creator` makes what a registered id stands for, which is told to draw pictures.

    Raises:
        ConfigError: If the directory cannot be made.
    """
    folder = Path(log_dir or os.getcwd()) / (record_env if isinstance(record_env, str) else "")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"record_env: the directory {str(folder)!r} cannot be made: {error}") from error

    def make_filmed(context: EnvContext) -> Any:
        if by_id and "render_mode" not in context:
            context = context.copy_with_overrides(env_config={**context, "render_mode": _PICTURES})
        return film(creator(context), folder, f"{prefix}worker_{context.worker_index}_env_{context.vector_index}")

    return make_filmed


def film(env: Any, folder: Path, name: str) -> Any:
    """Returns an environment that is filmed where it draws pictures; where it does not, a warning says so."""
    why_not = _why_no_pictures(env)
    if why_not is None:
        Film(env, folder, name)
    else:
        logger.warning("record_env: no videos of %s: %s", type(env).__name__, why_not)
    return env


def _why_no_pictures(env: Any) -> str | None:
    """Returns why an environment cannot be filmed, None if it can, by what it says of itself."""
    if not all(callable(getattr(env, method, None)) for method in ("reset", "step", "render")):
        return "it is not stepped singly, or has no render()"
    metadata = getattr(env, "metadata", None) or {}
    modes = metadata.get("render_modes", metadata.get("render.modes", ()))
    if _PICTURES not in (modes or ()):
        return f"its metadata has no {_PICTURES!r} among the render_modes"
    if getattr(env, "render_mode", None) != _PICTURES and not _takes_mode(env):
        return f"make it with render_mode={_PICTURES!r}"
    return None


def _takes_mode(env: Any) -> bool:
    parameters = inspect.signature(env.render).parameters.values()
    return any(p.name == "mode" or p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in parameters)


class Film:
    """Films every episode of an environment, of any contract, with one agent or several.

    The environment stays what it is: its own `reset`, `step` and `close` take a frame, too. A file is complete when the
    episode is over.

    Args:
        env: The environment.
        folder: Where `name_episode_000.mp4` and the following are written.
        name: What its files begin with.
    """

    def __init__(self, env: Any, folder: Path, name: str) -> None:
        self._env, self._folder, self._name = env, folder, name
        self._by_mode = getattr(env, "render_mode", None) != _PICTURES
        self._reset, self._step, self._close = env.reset, env.step, getattr(env, "close", None)
        self._episode = len(list(folder.glob(f"{name}_episode_*.mp4")))  # behind those of a worker before
        self._first: Any = None  # what is seen at a reset: many are made only to look
        self._video: Video | None = None
        env.reset = functools.wraps(self._reset)(lambda *args, **kwargs: self.reset(*args, **kwargs))
        env.step, env.close = self.step, self.close

    def reset(self, *args: Any, **kwargs: Any) -> Any:
        """Resets the environment, and keeps what is seen then."""
        self._finish()
        result = self._reset(*args, **kwargs)
        self._first = self._frame()
        return result

    def step(self, action: Any) -> Any:
        """Does a step, and keeps what is seen then; the first of an episode begins a file."""
        result = self._step(action)
        frame = self._frame()
        if self._video is None:
            first = frame if self._first is None else self._first
            path = self._folder / f"{self._name}_episode_{self._episode:03d}.mp4"
            self._video = Video(path, first, frames_per_s(self._env), "record_env")
            self._video.append(first)
            self._episode += 1
        self._video.append(frame)
        if _is_over(result):
            self._finish()
        return result

    def close(self) -> None:
        """Finishes the file, and closes the environment, if it knows how."""
        self._finish()
        if self._close is not None:
            self._close()

    def _frame(self) -> np.ndarray[Any, Any]:
        frame = self._env.render(mode=_PICTURES) if self._by_mode else self._env.render()
        array = np.asarray(frame)
        if array.ndim != 3 or array.shape[2] != 3:
            raise EnvError(
                f"record_env: render() of {type(self._env).__name__} returned {type(frame).__name__} of shape "
                f"{array.shape}, wanted an array [height, width, 3]; its metadata promises {_PICTURES!r}"
            )
        return np.ascontiguousarray(array.astype(np.uint8))

    def _finish(self) -> None:
        if self._video is not None:
            self._video.close()
        self._video = self._first = None


def _is_over(result: Any) -> bool:
    """Returns whether a step ended the episode: `done`, or `terminated` or `truncated`; of several agents, of all."""
    ends = result[2:-1]
    return any(bool(end.get("__all__", False)) if isinstance(end, dict) else bool(end) for end in ends)
