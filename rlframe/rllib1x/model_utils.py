"""RLlib's helpers of models, which take a framework: activations, initialisers, default convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from rlframe.models.actor_layers import normalize_activation
from rlframe.models.conv_sizes import filters_for, pair
from rlframe.models.obs_layout import restore_original_dimensions
from rlframe.utils.framework import try_import_torch

_INITIALIZERS = {None: "uniform", "default": "uniform", "xavier_uniform": "uniform", "xavier_normal": "normal"}


def get_activation_fn(name: Any = None, framework: str = "tf") -> Any:
    """Returns the activation of a name: a module class of torch's, a function of TensorFlow's; None for "linear".

    Args:
        name: Such as "relu" or "tanh", also any function of `tf.nn`; a callable is returned as it is.
        framework: "torch", or "tf" ("tf2" and "tfe" mean the same).

    Raises:
        ValueError: If there is no such activation, or no such framework.
    """
    if callable(name) or name in (None, "linear"):
        return None if name == "linear" else name
    if _known(framework) == "torch":
        from rlframe.models.torch.misc import activation_module

        return type(activation_module(name))
    from rlframe.models.tf.misc import ACTIVATION_FUNCTIONS
    from rlframe.utils.quiet_tf import tf

    return getattr(tf.nn, name, None) or ACTIVATION_FUNCTIONS[normalize_activation(name)]


def get_initializer(name: Any, framework: str = "tf") -> Any:
    """Returns an initialiser: for torch a function that fills a tensor, for TensorFlow a Keras class.

    Args:
        name: "xavier_uniform" ("default" and None mean the same) or "xavier_normal"; a callable is returned as it is.
        framework: "torch", or "tf" ("tf2" and "tfe" mean the same).

    Raises:
        ValueError: If there is no such initialiser, or no such framework.
    """
    if callable(name):
        return name
    if name not in _INITIALIZERS:
        raise ValueError(f"Got the initialiser {name!r}; wanted one of {[key for key in _INITIALIZERS if key]}.")
    normal = _INITIALIZERS[name] == "normal"
    if _known(framework) == "torch":
        _, nn = try_import_torch()
        return nn.init.xavier_normal_ if normal else nn.init.xavier_uniform_
    from rlframe.utils.quiet_tf import tf

    return tf.keras.initializers.GlorotNormal if normal else tf.keras.initializers.GlorotUniform


def get_filter_config(shape: Sequence[int]) -> list[list[Any]]:
    """Returns the default convolutions for images of `shape` [H, W, C]: [out_channels, [height, width], stride] each.

    Raises:
        ConfigError: If there are none for this size.
    """
    return [[channels, list(pair(kernel)), stride] for channels, kernel, stride in filters_for(shape, None)]


def _known(framework: str) -> str:
    if framework == "torch":
        return framework
    if framework in ("tf", "tf2", "tfe"):
        return "tf"
    raise ValueError(f"Got framework={framework!r}; wanted 'torch' or 'tf' ('tf2' and 'tfe' mean the same).")


def unpack_obs(obs: Any, space: Any, tensorlib: Any = None) -> Any:
    """Returns flat observations in the structure of the space they were flattened from.

    Args:
        obs: Float `[B, D]`, NumPy or a tensor.
        space: The nested space itself, not a preprocessed one.
        tensorlib: Not needed, the kind of `obs` tells.
    """
    return restore_original_dimensions(obs, SimpleNamespace(original_space=space, shape=None), tensorlib)


def flatten(obs: Any, framework: str) -> Any:
    """Returns observations `[B, ...]`, tensors of "torch" or "tf", as `[B, D]`.

    Raises:
        ValueError: If there is no such framework.
    """
    if _known(framework) == "torch":
        return obs.flatten(1)
    from rlframe.rllib1x.tf_layers import flatten as flatten_rows

    return flatten_rows(obs)
