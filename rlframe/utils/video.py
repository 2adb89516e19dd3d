"""Videos of frames that environments draw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rlframe.utils.errors import ConfigError

_FRAMES_PER_S = 30.0
INSTALL = 'pip install "rlframe[video]"'


class Video:
    """An MP4 file that frames are appended to (H.264, the pixel format that every player takes)."""

    def __init__(self, path: Path, first: np.ndarray[Any, Any], frames_per_s: float, flag: str = "--video-dir") -> None:
        try:
            import imageio_ffmpeg
        except ImportError as error:
            raise ConfigError(f"{flag} needs imageio-ffmpeg: {INSTALL}") from error
        height, width = _even(first).shape[:2]
        self._writer = imageio_ffmpeg.write_frames(
            str(path), (width, height), fps=frames_per_s, codec="libx264", macro_block_size=1, ffmpeg_log_level="error"
        )
        self._writer.send(None)

    def append(self, frame: np.ndarray[Any, Any]) -> None:
        """Adds a frame, uint8 `[height, width, 3]`."""
        self._writer.send(_even(frame))

    def close(self) -> None:
        """Finishes the file."""
        self._writer.close()


def frames_per_s(env: Any) -> float:
    """Returns how many frames of an environment are a second, by its metadata."""
    metadata = getattr(env, "metadata", None) or {}
    return float(metadata.get("render_fps") or metadata.get("video.frames_per_second") or _FRAMES_PER_S)


def _even(frame: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns a frame with a black line added where a side is odd: colours are kept for every other pixel only."""
    height, width = frame.shape[:2]
    return np.ascontiguousarray(np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0))))
