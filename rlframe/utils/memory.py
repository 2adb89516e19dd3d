"""RLlib's path to the aligned arrays; they live in `rlframe.utils.numpy`."""

from rlframe.utils.numpy import aligned_array, concat_aligned

__all__ = ["aligned_array", "concat_aligned"]
