"""RLlib's `utils.images`; OpenCV, which does the work, comes with the extra `atari`."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray


def _cv2() -> Any:
    try:
        import cv2
    except ImportError as error:
        raise ImportError("This needs OpenCV, which is not installed: pip install 'rlframe[atari]'") from error
    return cv2


def resize(img: NDArray[Any], height: int, width: int) -> NDArray[Any]:
    """Returns an image `[H, W, ...]` as `[height, width, ...]`, each new pixel the mean of what it covers."""
    cv2 = _cv2()
    resized: NDArray[Any] = cv2.resize(img, (width, height), interpolation=cv2.INTER_AREA)
    return resized


def rgb2gray(img: NDArray[Any]) -> NDArray[Any]:
    """Returns the brightness `[H, W]` of an image `[H, W, 3]`: 0.299 of red, 0.587 of green, 0.114 of blue."""
    cv2 = _cv2()
    gray: NDArray[Any] = cv2.cvtColor(img, cv2.COLOR_RGB2GRAY)
    return gray


def imread(img_file: str | os.PathLike[str]) -> NDArray[np.float32]:
    """Returns an image file as float32 `[H, W, 3]` in [0, 255], blue first, as OpenCV has it.

    Raises:
        FileNotFoundError: If there is no image that OpenCV can read.
    """
    image = _cv2().imread(os.fspath(img_file))
    if image is None:
        raise FileNotFoundError(f"Got {os.fspath(img_file)!r}; wanted a file of an image that OpenCV can read.")
    pixels: NDArray[np.float32] = image.astype(np.float32)
    return pixels
