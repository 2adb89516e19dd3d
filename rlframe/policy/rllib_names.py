"""Methods that RLlib's policies had and nothing here calls: the names that programs know, in terms of what there is."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.spaces import Box

from rlframe.data.columns import OBS, STATE_IN_PREFIX, STATE_OUT_PREFIX
from rlframe.data.view_requirements import ViewRequirement
from rlframe.policy.policy_lock import OwnLock
from rlframe.utils.numpy import convert_to_numpy
from rlframe.utils.state_files import write_state

if TYPE_CHECKING:
    from collections.abc import Callable

    from rlframe.data.sample_batch import SampleBatch


class RLlibPolicyNames:
    """Methods of every `Policy` for the sake of RLlib's names alone."""

    config: Any
    #: The policy's lock, for `with_lock`.
    _lock = OwnLock()

    def _update_model_view_requirements_from_init_state(self: Any) -> None:
        """Adds the states to the views of the model, or of a policy without one; constructors of RLlib's copies do.

        Nothing here reads them: a policy has a memory where `get_initial_state` returns states.
        """
        model = getattr(self, "model", None)
        owner = self if model is None else model
        if not hasattr(owner, "view_requirements"):
            owner.view_requirements = {OBS: ViewRequirement(space=self.observation_space)}
        for index, state in enumerate(owner.get_initial_state()):
            space = Box(-1.0, 1.0, tuple(state.shape))
            owner.view_requirements[f"{STATE_IN_PREFIX}{index}"] = ViewRequirement(
                f"{STATE_OUT_PREFIX}{index}", shift=-1, space=space
            )
            owner.view_requirements[f"{STATE_OUT_PREFIX}{index}"] = ViewRequirement(space=space)

    def _convert_to_tensor(self: Any, arr: Any) -> Any:
        """Returns an array, a list of such or a tensor as a tensor on the policy's device; PyTorch's of RLlib 0.8."""
        array = np.asarray(convert_to_numpy(arr))
        return self.to_tensors(array.astype(np.float32) if array.dtype == np.float64 else array)

    def apply(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Returns `func(policy, *args, **kwargs)`."""
        return func(self, *args, **kwargs)

    def get_host(self) -> str:
        """Returns the machine's name."""
        return socket.gethostname()

    # --- batches that are loaded once and learned from in parts ------------------------------------------------

    def load_batch_into_buffer(self, batch: SampleBatch, buffer_index: int = 0) -> int:
        """Keeps a batch, which `learn_on_loaded_batch` learns from.

        Args:
            batch: The rows; in place of those that the buffer held.
            buffer_index: Any number; each is a buffer of its own.

        Returns:
            Number of rows.
        """
        self._loaded()[buffer_index] = batch
        return batch.count

    def get_num_samples_loaded_into_buffer(self, buffer_index: int = 0) -> int:
        """Returns the number of rows in a buffer, 0 if nothing was loaded."""
        batch = self._loaded().get(buffer_index)
        return 0 if batch is None else batch.count

    def learn_on_loaded_batch(self, offset: int = 0, buffer_index: int = 0) -> dict[str, Any]:
        """Does one learner step on the `sgd_minibatch_size` rows of a buffer from row `offset` on; all, if not set.

        Args:
            offset: The first row.
            buffer_index: The buffer.

        Raises:
            ValueError: If nothing was loaded, or fewer rows.
        """
        rows = self.get_num_samples_loaded_into_buffer(buffer_index)
        if not 0 <= offset < rows:
            raise ValueError(
                f"Got offset={offset} of buffer {buffer_index}, which has {rows} rows; wanted one of its rows: "
                "load_batch_into_buffer() comes first"
            )
        batch = self._loaded()[buffer_index]
        size = self.config.get("sgd_minibatch_size") or rows
        part = batch if size >= rows else batch[offset : offset + size]
        learned: dict[str, Any] = self.learn_on_batch(part)  # type: ignore[attr-defined]  # the policy's
        return learned

    def _loaded(self) -> dict[int, SampleBatch]:
        loaded: dict[int, SampleBatch] = self.__dict__.setdefault("_loaded_batches", {})
        return loaded

    # --- export and import -------------------------------------------------------------------------------------

    def export_model(self, export_dir: str, onnx: int | None = None) -> None:
        """Writes the network for use elsewhere; policies of a framework do.

        Raises:
            NotImplementedError: If the class does not say how.
        """
        raise NotImplementedError(f"{type(self).__name__} has no network of PyTorch or TensorFlow to export")

    def export_checkpoint(self, export_dir: str, filename_prefix: str = "model") -> None:
        """Writes the whole state (weights, targets, optimiser) as arrays and JSON.

        Args:
            export_dir: Folder, made if missing.
            filename_prefix: Name of the folder in it.
        """
        state = self.get_state()  # type: ignore[attr-defined]  # the policy's
        write_state(os.path.join(export_dir, filename_prefix), state, {"kind": "policy"})

    def import_model_from_h5(self, import_file: str) -> None:
        """Has the model load an HDF5 file, by a method `import_from_h5(file)` of its own.

        Raises:
            NotImplementedError: If the model has no such method.
        """
        load = getattr(getattr(self, "model", None), "import_from_h5", None)
        if load is None:
            raise NotImplementedError(
                f"The model of {type(self).__name__} has no import_from_h5(file): write one, or read the file, and "
                "give set_weights() its arrays by the names that get_weights() has"
            )
        load(import_file)

    # --- older names -------------------------------------------------------------------------------------------

    def get_exploration_info(self) -> dict[str, Any]:
        """Returns what `get_exploration_state` does (the older name), without random streams."""
        state: dict[str, Any] = self.get_exploration_state()  # type: ignore[attr-defined]  # the policy's
        return {name: value for name, value in state.items() if name != "rng"}

    def get_session(self) -> Any:
        """Returns None, as RLlib's policies without a graph did; `TFPolicy` has more to say."""
        return None
