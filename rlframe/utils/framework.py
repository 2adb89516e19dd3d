"""The learning frameworks, imported when they are asked for and never before."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any

from rlframe.utils.errors import ConfigError

__all__ = [
    "get_activation_fn",
    "get_variable",
    "require_framework",
    "try_import_jax",
    "try_import_tf",
    "try_import_tfp",
    "try_import_torch",
]


class LazyModule(ModuleType):
    """Stands for a module that is imported when one of its attributes is used.

    Programs call `try_import_tf()` at the top of files that also serve torch; this way they pay for TensorFlow only
    where they use it.
    """

    def __getattr__(self, name: str) -> Any:
        """Imports the module, and returns its attribute."""
        return getattr(self._imported(), name)

    def _imported(self) -> ModuleType:
        if self.__name__.startswith("tensorflow"):
            importlib.import_module("rlframe.utils.quiet_tf")  # loads what has to be loaded before
        return importlib.import_module(self.__name__)

    def __dir__(self) -> list[str]:
        """Imports the module, and lists its attributes."""
        return dir(self._imported())

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles by name."""
        return LazyModule, (self.__name__,)


class _MissingModule:
    """In place of `torch.nn.Module` where torch is not installed: can be subclassed, but not made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002 (takes what the real one takes)
        raise ImportError(f"{type(self).__name__} needs PyTorch, which is not installed: run `pip install torch`.")


class _MissingNN:
    """In place of `torch.nn` where torch is not installed, so that modules with torch models can be imported."""

    Module = _MissingModule

    def __bool__(self) -> bool:
        """False, like the missing torch."""
        return False


def try_import_torch(error: bool = False) -> tuple[Any, Any]:
    """Returns `(torch, torch.nn)`; `(None, a stand-in with a Module class)` where torch is not installed.

    Args:
        error: Whether to raise instead.

    Raises:
        ImportError: If torch is missing and `error` is set.
    """
    try:
        return importlib.import_module("torch"), importlib.import_module("torch.nn")
    except ImportError:
        if error:
            raise
        return None, _MissingNN()


class _TensorFlows(tuple[Any, ...]):
    """What `try_import_tf` returns; RLlib 0.8 returned `tf.compat.v1` alone, whose attributes it has, too."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self[0], name)


def try_import_tf(error: bool = False) -> Any:
    """Returns `(tf.compat.v1, tf, 2)`; `(None, None, None)` where TensorFlow is not installed.

    The modules are imported when one of their attributes is used first.

    Args:
        error: Whether to raise instead.

    Raises:
        ImportError: If TensorFlow is missing and `error` is set.
    """
    if not _is_installed("tensorflow"):
        if error:
            raise ImportError("TensorFlow is not installed: run `pip install tensorflow`.")
        return None, None, None
    # TensorFlow greets every process with several lines otherwise.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    return _TensorFlows((LazyModule("tensorflow.compat.v1"), LazyModule("tensorflow"), 2))


def require_framework(framework: str, log_level: str | None = None) -> str:
    """Returns "torch" or "tf" for a config's `framework`, after a look at whether it is installed.

    Args:
        framework: "torch", "tf", "tf2" or "tfe"; the last three mean the same.
        log_level: "DEBUG" lets TensorFlow write what it otherwise is kept from.

    Raises:
        ConfigError: If it is not installed.
    """
    if framework not in ("tf", "tf2", "tfe"):
        return framework
    if not _is_installed("tensorflow"):
        raise ConfigError(
            f"framework={framework!r} needs TensorFlow, which is not installed: pip install 'rlframe[tf]', or set "
            "framework='torch'"
        )
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "0" if log_level == "DEBUG" else "3")
    importlib.import_module("rlframe.utils.quiet_tf")  # before any module that imports TensorFlow loudly
    return "tf"


def try_import_tfp(error: bool = False) -> Any:
    """Returns TensorFlow Probability, imported at first use; None where it is not installed.

    Args:
        error: Whether to raise instead.

    Raises:
        ImportError: If it is missing and `error` is set.
    """
    if not _is_installed("tensorflow_probability"):
        if error:
            raise ImportError("TensorFlow Probability is not installed: run `pip install tensorflow-probability`.")
        return None
    return LazyModule("tensorflow_probability")


def try_import_jax(error: bool = False) -> tuple[None, None]:
    """Returns `(None, None)`: there are no jax policies.

    Args:
        error: Whether to raise instead.

    Raises:
        ImportError: If `error` is set.
    """
    if error:
        raise ImportError("rlframe has no jax policies: use framework='torch'.")
    return None, None


def _is_installed(name: str) -> bool:
    if name in sys.modules:
        return sys.modules[name] is not None
    return importlib.util.find_spec(name) is not None


_TORCH_ACTIVATIONS = {
    "elu": "ELU",
    "gelu": "GELU",
    "leaky_relu": "LeakyReLU",
    "relu": "ReLU",
    "relu6": "ReLU6",
    "selu": "SELU",
    "sigmoid": "Sigmoid",
    "silu": "SiLU",
    "softplus": "Softplus",
    "softsign": "Softsign",
    "swish": "SiLU",
    "tanh": "Tanh",
}


def get_activation_fn(name: Any = None, framework: str = "tf") -> Any:
    """Returns an activation by its name.

    Args:
        name: A name such as "relu" or "tanh"; None, "linear" or "identity" for none; anything that can be called is
            returned as it is.
        framework: "torch" gives a class of `torch.nn`; "tf", "tf2" or "tfe" a function of TensorFlow.

    Returns:
        The class or function, None for no activation.

    Raises:
        ValueError: If the name is unknown.
    """
    if callable(name):
        return name
    if name is None or name.lower() in ("linear", "identity"):
        return None
    known = _TORCH_ACTIVATIONS
    if name.lower() not in known:
        raise ValueError(f"Unknown activation {name!r}; known are linear, {', '.join(sorted(known))}.")
    if framework == "torch":
        return getattr(try_import_torch(error=True)[1], known[name.lower()])
    if framework in ("tf", "tf2", "tfe"):
        return getattr(try_import_tf(error=True)[1].nn, name.lower())
    raise ValueError(f"Unknown framework {framework!r}; wanted torch, tf or tf2.")


def get_variable(  # noqa: PLR0913, PLR0917 (the signature programs call)
    value: Any,
    framework: str = "tf",
    trainable: bool = False,
    tf_name: str = "unnamed-variable",
    torch_tensor: bool = False,
    device: Any = None,
    shape: Any = None,
    dtype: Any = None,
) -> Any:
    """Returns a value that the framework can hold and change.

    Args:
        value: The initial value.
        framework: "torch", "tf", "tf2" or "tfe"; anything else gives the value itself.
        trainable: Whether gradients are taken.
        tf_name: Name of the TensorFlow variable.
        torch_tensor: Whether torch gets a tensor; otherwise plain numbers stay plain.
        device: Torch device.
        shape: What an initialiser of TensorFlow is called with; of other values not needed.
        dtype: Type of the elements, in the framework's own words.
    """
    if framework in ("tf", "tf2", "tfe"):
        tf = try_import_tf(error=True)[1]
        if callable(value) and shape is not None:
            value = value(shape, dtype=dtype or tf.float32)
        return tf.Variable(value, trainable=trainable, name=tf_name, dtype=dtype)
    if framework == "torch" and torch_tensor:
        torch = try_import_torch(error=True)[0]
        made = torch.as_tensor(value, dtype=dtype, device=device)
        return made.requires_grad_(trainable) if trainable else made
    return value
