"""Which frameworks are installed here."""

import importlib.util

import pytest

HAS_TF = importlib.util.find_spec("tensorflow") is not None
needs_tf = pytest.mark.skipif(not HAS_TF, reason="TensorFlow is not installed: pip install 'rlframe[tf]'")
#: For `pytest.mark.parametrize("framework", FRAMEWORKS)`.
FRAMEWORKS = ["torch", pytest.param("tf", marks=needs_tf)]
