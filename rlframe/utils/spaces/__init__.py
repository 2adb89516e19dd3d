"""Spaces beyond Gymnasium's, checks of observations, and the mapping between actions and their arrays."""

from rlframe.utils.spaces.flexdict import FlexDict
from rlframe.utils.spaces.observations import check_observation, fits_space
from rlframe.utils.spaces.repeated import Repeated
from rlframe.utils.spaces.simplex import Simplex

__all__ = ["FlexDict", "Repeated", "Simplex", "check_observation", "fits_space"]
