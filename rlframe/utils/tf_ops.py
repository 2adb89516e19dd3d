"""RLlib's older path to `rlframe.utils.tf_utils`."""

from rlframe.utils.tf_utils import *  # noqa: F403 (the same names)
