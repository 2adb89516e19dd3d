"""RLlib's name for TensorFlow policies built around a loss: here every TensorFlow policy is one."""

from rlframe.policy.tf_policy import TFPolicy

DynamicTFPolicy = TFPolicy

__all__ = ["DynamicTFPolicy"]
