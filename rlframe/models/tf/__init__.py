"""TensorFlow models and action distributions."""

from rlframe.utils import quiet_tf as quiet_tf  # TensorFlow is loaded here first, without its greetings
