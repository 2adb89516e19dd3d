"""PopArt's layer at the end of a network's values, and how values stay what they are when its moments move."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.models.fcnet_spec import POPART_LAYER
from rlframe.models.spec import ModelLayers


class PopArtLayer:
    """What a `LayeredModel` has for PopArt: V(s) = μ + σ (w · features + b), where the layer is there.

    Source: van Hasselt et al. 2016, "Learning values across many orders of magnitude", section 2.2.
    """

    _spec: ModelLayers
    get_spec_weight: Any
    set_spec_weight: Any

    def set_own_value_moments(self, mean: float, std: float) -> bool:
        """Does what `set_value_moments` does for this network alone."""
        if not any(layer.name == POPART_LAYER for layer in self._spec.values or ()):
            return False
        sigma, mu = (float(self.get_spec_weight(POPART_LAYER, part).reshape(())) for part in ("weight", "bias"))
        weight, bias = (self.get_spec_weight("value", part) for part in ("weight", "bias"))
        self.set_spec_weight("value", "weight", weight * (sigma / std))
        self.set_spec_weight("value", "bias", (bias * sigma + (mu - mean)) / std)
        self.set_spec_weight(POPART_LAYER, "weight", np.full((1, 1), std, np.float32))
        self.set_spec_weight(POPART_LAYER, "bias", np.full(1, mean, np.float32))
        return True
