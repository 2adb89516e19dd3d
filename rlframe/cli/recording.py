"""Videos and pictures of played episodes."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from rlframe.cli.play_options import PlayOptions
from rlframe.env.registry import how_to_install
from rlframe.utils.errors import ConfigError, EnvError
from rlframe.utils.video import INSTALL, Video, frames_per_s


def describe_failure(error: Exception) -> str:
    """Returns what an environment raised, with what to install where that is what it says."""
    advice = how_to_install(str(error))
    said = str(error).partition(", run `pip")[0] if advice else str(error)  # Gymnasium's own advice brings less
    return f"{type(error).__name__}: {said}. {advice}" if advice else f"{type(error).__name__}: {said}"


class Camera:
    """Takes a frame after each step of one episode, and leaves files.

    `episode_003.mp4` in the video directory is complete when the context ends; `episode_003_step_000120.png` lie in
    the frame directory as soon as they are taken.

    Args:
        env: The environment, made with `render_mode="rgb_array"`, or with "human" where nothing is kept.
        episode: Its number, from 0.
        options: What is kept, and how often.
    """

    def __init__(self, env: Any, episode: int, options: PlayOptions) -> None:
        self._env = env
        self._name = f"episode_{episode:03d}"
        self._options = options
        self._steps = 0
        self._video: Any = None

    def __enter__(self) -> Camera:
        """Makes the directories.

        Raises:
            ConfigError: If that cannot be done.
        """
        for flag, directory in (("--video-dir", self._options.video_dir), ("--frame-dir", self._options.frame_dir)):
            if directory is not None:
                make_directory(directory, flag)
                # Pictures need no screen; without one, SDL complains about it.
                os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finishes the video."""
        if self._video is not None:
            self._video.close()

    def take(self) -> None:
        """Takes the frame of the present state, where any is wanted."""
        options = self._options
        if options.video_dir is not None or options.frame_dir is not None:
            self._keep()
        elif options.render:
            self._rendered()
        if options.frame_delay_s > 0.0:
            time.sleep(options.frame_delay_s)
        self._steps += 1

    def _keep(self) -> None:
        options = self._options
        kept = options.frame_dir is not None and self._steps % options.frame_frequency == 0
        if options.video_dir is None and not kept:
            return
        frame = self._frame()
        if options.video_dir is not None:
            self._video = self._video or Video(options.video_dir / f"{self._name}.mp4", frame, frames_per_s(self._env))
            self._video.append(frame)
        if options.frame_dir is not None and kept:
            _write_png(options.frame_dir / f"{self._name}_step_{self._steps:06d}.png", frame)

    def _rendered(self) -> Any:
        try:
            return self._env.render()
        except Exception as error:
            raise EnvError(f"the environment cannot be drawn: {describe_failure(error)}") from error

    def _frame(self) -> np.ndarray[Any, Any]:
        frame = self._rendered()
        frame = frame[-1] if isinstance(frame, list) and frame else frame
        array = np.asarray(frame)
        if array.ndim != 3 or array.shape[2] != 3:
            raise EnvError(
                f"render() of the environment returned {type(frame).__name__} of shape {array.shape}, wanted an array "
                "[height, width, 3]: it must understand render_mode='rgb_array'"
            )
        return np.ascontiguousarray(array.astype(np.uint8))


def make_directory(directory: Path, flag: str) -> None:
    """Makes a directory that a flag named.

    Raises:
        ConfigError: If it cannot be made or written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / ".rlframe.tmp"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ConfigError(f"{flag}: the directory {str(directory)!r} cannot be written: {error}") from error


def _write_png(path: Path, frame: np.ndarray[Any, Any]) -> None:
    try:
        from PIL import Image
    except ImportError as error:
        raise ConfigError(f"--frame-dir needs Pillow: {INSTALL}") from error
    Image.fromarray(frame).save(path)
