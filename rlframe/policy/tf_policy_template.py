"""TensorFlow policies made from functions."""

from rlframe.policy.policy_template import build_tf_policy

__all__ = ["build_tf_policy"]
