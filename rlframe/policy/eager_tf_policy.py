"""RLlib's name for policies that run without a static graph: here every TensorFlow policy does."""

from rlframe.policy.policy_template import build_tf_policy as build_eager_tf_policy

__all__ = ["build_eager_tf_policy"]
