"""Importing TensorFlow without its greetings on stderr."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import tempfile
from typing import Any

from rlframe.utils.missing_tf import MissingTensorFlow


def import_tensorflow_quietly() -> Any:
    """Returns TensorFlow, imported; what its C++ parts write meanwhile is dropped, and shown only if the import fails.

    Setting the environment variable TF_CPP_MIN_LOG_LEVEL to 0, 1 or 2 before (as `log_level: DEBUG` does) keeps the
    messages. The variable alone does not silence what is written before TensorFlow's log is set up.
    """
    if "tensorflow" in sys.modules:
        return sys.modules["tensorflow"]
    _load_triton_first()
    if os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3") != "3":
        return importlib.import_module("tensorflow")
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as sink:
        os.dup2(sink.fileno(), 2)
        try:
            return importlib.import_module("tensorflow")
        except BaseException:
            sink.seek(0)
            os.write(kept, sink.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _load_triton_first() -> None:
    """Imports Triton, which PyTorch for GPUs brings and loads at the first step of some of its optimisers.

    Each of the two has an LLVM in it. Triton before TensorFlow works; behind it, the process ends in a segmentation
    fault (seen with TensorFlow 2.21 and Triton of PyTorch 2.13).
    """
    if importlib.util.find_spec("triton") is not None:
        with contextlib.suppress(ImportError):  # one that does not load here is no danger
            importlib.import_module("triton")


_loaded = sys.modules.get("tensorflow", ...)  # None: somebody says that there is none
_installed = importlib.util.find_spec("tensorflow") is not None if _loaded is ... else _loaded is not None
#: TensorFlow; where it is not installed, what can be imported and not called: programs import models and policies of
#: both frameworks, and use one of them.
tf: Any = import_tensorflow_quietly() if _installed else MissingTensorFlow()
