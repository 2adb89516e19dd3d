"""How much work a network of PyTorch's is."""

from __future__ import annotations

import numpy as np
from torch import nn

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def multiplications(model: nn.Module, shape: tuple[int, ...]) -> int:
    """Returns about how many multiplications one row costs in `model`: one per weight, in convolutions per place.

    Args:
        model: The network; all its layers are counted, in the order in which it names them.
        shape: Shape of an observation; `[H, W, C]` or `[C, H, W]` for images.
    """
    places = float(np.prod(shape)) / max(min(shape), 1) if len(shape) > 1 else 1.0
    work = 0.0
    for layer in model.modules():
        own = sum(parameter.numel() for parameter in layer.parameters(recurse=False))
        if isinstance(layer, _CONVOLUTIONS):
            places = max(places / float(np.prod(layer.stride)), 1.0)
            work += own * places
        else:
            work += own
    return int(work)
