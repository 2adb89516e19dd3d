"""Where attention looks: distances between steps, and the sinusoids that stand for them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def sinusoids(count: int, width: int) -> NDArray[np.float32]:
    """Returns the encodings of the distances 0 to `count` - 1, float32 `[count, width]`: sines, then cosines.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.5.
    """
    rates = 1.0 / 10000.0 ** (np.arange(0, width, 2) / width)
    angles = np.arange(count)[:, None] * rates[None]
    encoded = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)[:, :width]
    return encoded.astype(np.float32)
