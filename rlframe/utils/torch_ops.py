"""RLlib's older path to `rlframe.utils.torch_utils`."""

from rlframe.utils.torch_utils import *  # noqa: F403 (the same names)
