"""Files of Keras models: of weights, under any name, as in Keras 2, and of views of networks, as plain layers."""

from __future__ import annotations

import functools
import os
import warnings
from typing import Any

from rlframe.utils.quiet_tf import tf

#: Endings that Keras 3 itself takes for files of weights, or reads as files of Keras 2.
_PRESENT, _OLDER = (".weights.h5", ".weights.json", ".keras"), (".h5", ".hdf5")


def accept(keras: Any) -> None:
    """Has models write and read files of weights whose names do not end as Keras 3 wants: HDF5, as Keras 2's."""
    import h5py  # Keras brings it

    formats = keras.src.legacy.saving.legacy_h5_format
    save, load = keras.Model.save_weights, keras.Model.load_weights

    @functools.wraps(save)
    def save_weights(self: Any, filepath: Any, overwrite: bool = True, save_format: Any = None, **kwargs: Any) -> None:
        if save_format not in (None, "h5"):
            warnings.warn(
                f"save_format={save_format!r}: Keras 3 has HDF5 alone, which load_weights reads", stacklevel=2
            )
        path = os.fspath(filepath)
        if path.endswith(_PRESENT):
            save(self, filepath, overwrite, **kwargs)
            return
        if not self.built:
            raise ValueError(f"save_weights({path!r}): {self.name} has no weights yet; call it on inputs once, before")
        os.makedirs(os.path.dirname(path) or os.curdir, exist_ok=True)
        with h5py.File(path, "w" if overwrite else "x") as file:
            formats.save_weights_to_hdf5_group(file, self)

    @functools.wraps(load)
    def load_weights(self: Any, filepath: Any, *args: Any, **kwargs: Any) -> None:
        path = os.fspath(filepath)
        if path.endswith((*_PRESENT, *_OLDER)) or not (os.path.isfile(path) and h5py.is_hdf5(path)):
            load(self, filepath, *args, **kwargs)
            return
        by_name = kwargs.pop("by_name", False)
        with h5py.File(path, "r") as file:
            read = formats.load_weights_from_hdf5_group_by_name if by_name else formats.load_weights_from_hdf5_group
            read(file, self, *args, **kwargs)

    keras.Model.save_weights, keras.Model.load_weights = save_weights, load_weights


class ViewModel(tf.keras.Model):  # type: ignore[misc]  # TensorFlow has no types
    """A network as a Keras model; its files hold plain layers with copies of the weights, which Keras reads alone."""

    def save(self, filepath: Any, overwrite: bool = True, save_format: Any = None, **kwargs: Any) -> None:
        """Writes a file (`.keras`, `.h5`), or else a directory of TensorFlow's, a SavedModel.

        Args:
            filepath: Where to.
            overwrite: Whether a file that is there may be replaced.
            save_format: "h5" writes such a file under any name.
            **kwargs: What `keras.Model.save` takes.

        Raises:
            ValueError: If there is no plain layer of Keras' for one of the network's.
        """
        copied = plain(self)
        if os.fspath(filepath).endswith((".keras", *_OLDER)):
            copied.save(filepath, overwrite=overwrite, **kwargs)
        elif save_format == "h5":
            tf.keras.src.legacy.saving.legacy_h5_format.save_model_to_hdf5(copied, filepath, overwrite)
        else:
            copied.export(filepath, verbose=False)


def plain(model: Any) -> Any:
    """Returns a Keras model of plain layers with the weights of a view."""
    copied = tf.keras.models.clone_model(tf.keras.Model(model.input, model.output), clone_function=_plain_layer)
    for layer in copied.layers:
        of_network = model.get_layer(layer.name)
        if getattr(of_network, "live", ()):
            layer.set_weights(of_network.plain_weights())
    return copied


def _plain_layer(layer: Any) -> Any:
    make = getattr(layer, "make_plain", None)
    if make is not None:
        return make()
    if hasattr(layer, "live"):
        raise ValueError(
            f"layer {layer.name!r} of the network: Keras has no layer that computes the same; write the policy by "
            "policy.export_model(directory) instead, or the weights by save_weights('x.weights.h5')"
        )
    return layer.__class__.from_config(layer.get_config())


__all__ = ["ViewModel", "accept", "plain"]
