"""Triton beside TensorFlow: each has an LLVM in it, and Triton loaded second ends the process in a segmentation fault.

PyTorch for GPUs brings Triton, and loads it when one of its optimisers is made or steps first. Seen with TensorFlow
2.21 and the Triton of PyTorch 2.13; the other way round they get along.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import sys

_LOGGER = logging.getLogger("rlframe")


def load_triton_first() -> None:
    """Imports Triton, where it is installed: called before TensorFlow is imported."""
    if "triton" not in sys.modules and importlib.util.find_spec("triton") is not None:
        with contextlib.suppress(ImportError):  # one that does not load here is no danger
            importlib.import_module("triton")


def leave_triton_out() -> None:
    """Has PyTorch do without Triton where the program imported TensorFlow before it; called before optimisers are made.

    What needs Triton, as `torch.compile` on a GPU does, says then that it is missing.
    """
    if "tensorflow" not in sys.modules or "triton" in sys.modules or importlib.util.find_spec("triton") is None:
        return
    sys.modules["triton"] = None  # type: ignore[assignment]  # what `import` takes as: there is none
    _LOGGER.info("PyTorch does without Triton, which TensorFlow does not let load behind it: import triton first")
