"""RLlib's path to the callbacks; they live in `rlframe.evaluation.callbacks`."""

from rlframe.evaluation.callbacks import DefaultCallbacks, MemoryTrackingCallbacks, MultiCallbacks

__all__ = ["DefaultCallbacks", "MemoryTrackingCallbacks", "MultiCallbacks"]
