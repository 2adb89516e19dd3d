"""Importing TensorFlow without its greetings on stderr."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import tempfile
from typing import Any

from rlframe.utils.missing_tf import MissingTensorFlow
from rlframe.utils.triton import load_triton_first


def import_tensorflow_quietly() -> Any:
    """Returns TensorFlow, imported; what its C++ parts write meanwhile is dropped, and shown only if the import fails.

    Setting the environment variable TF_CPP_MIN_LOG_LEVEL to 0, 1 or 2 before (as `log_level: DEBUG` does) keeps the
    messages. The variable alone does not silence what is written before TensorFlow's log is set up.
    """
    # TensorFlow shares its LLVM's symbols with what is loaded later. A window that draws through Mesa's, as pygame's do
    # by default, ends the process in a segmentation fault: such windows draw without OpenGL, unless the program says.
    os.environ.setdefault("SDL_FRAMEBUFFER_ACCELERATION", "0")
    if "tensorflow" in sys.modules:
        return sys.modules["tensorflow"]
    load_triton_first()
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


_loaded = sys.modules.get("tensorflow", ...)  # None: somebody says that there is none
_installed = importlib.util.find_spec("tensorflow") is not None if _loaded is ... else _loaded is not None
#: TensorFlow; where it is not installed, what can be imported and not called: programs import models and policies of
#: both frameworks, and use one of them.
tf: Any = import_tensorflow_quietly() if _installed else MissingTensorFlow()
