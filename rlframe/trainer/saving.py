"""What a trainer writes and reads: weights, checkpoints, and its policies for use elsewhere."""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path
from typing import Any, cast

from ray.tune import Checkpoint, Trainable

from rlframe.data.sample_batch import DEFAULT_POLICY_ID
from rlframe.trainer import checkpoint_paths, checkpointing
from rlframe.utils.errors import CheckpointError, ConfigError
from rlframe.utils.names import trusting

_FORMATS = ("checkpoint", "model", "onnx")


def trial_directory(storage: Any) -> str:
    """Returns where a trial of Tune writes: its own directory, as in Ray 1.x.

    Today's Ray has it write into one of the session, below /tmp, of which it keeps nothing. That stays so where the
    trial's own is on no file system of this machine.

    Args:
        storage: Ray's `StorageContext` of the trial.
    """
    local = storage.storage_filesystem.type_name == "local"
    return str(storage.trial_fs_path if local else storage.trial_working_directory)


def enter_trial_directory(storage: Any) -> str:
    """Makes a trial's directory, and the working one if Ray has changed that for the trial; returns it."""
    directory = trial_directory(storage)
    os.makedirs(directory, exist_ok=True)
    if os.path.realpath(os.getcwd()) == os.path.realpath(storage.trial_working_directory):
        os.chdir(directory)
    return directory


class TrainableOfRay1(Trainable):
    """What trainables of Ray 1.x did.

    They write into their trials' directories, `save_checkpoint` may return a file's path, and results have an
    `experiment_id`.
    """

    def __init__(self, config: Any = None, storage: Any = None) -> None:
        self.experiment_id = uuid.uuid4().hex
        super().__init__(config, storage or self.__dict__.pop("_storage_of_trial", None))

    def get_auto_filled_metrics(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Returns what each result has, whatever `step` returns."""
        made: dict[str, Any] = super().get_auto_filled_metrics(*args, **kwargs)
        return {**made, "experiment_id": self.experiment_id}

    def _setup_logdir(self) -> None:
        cast(Any, super())._setup_logdir()
        if self._storage:
            self._logdir: Any = enter_trial_directory(self._storage)

    def _report_class_trainable_checkpoint(self, checkpoint_dir: str, checkpoint_dict_or_path: Any) -> Any:
        """Tells Tune of a checkpoint."""
        kept = checkpoint_dict_or_path if isinstance(checkpoint_dict_or_path, dict) else None
        return cast(Any, super())._report_class_trainable_checkpoint(checkpoint_dir, kept)


class SavingMixin(TrainableOfRay1):
    """What leaves a `Trainer` and comes back: weights, checkpoints, and files of its policies."""

    workers: Any

    def get_weights(self, policies: list[str] | None = None) -> dict[str, Any]:
        """Returns `{policy_id: {name: array}}`, copies."""
        weights: dict[str, Any] = self.workers.local_worker().get_weights(policies)
        return weights

    def set_weights(self, weights: dict[str, Any]) -> None:
        """Takes `{policy_id: weights}` into the local worker; remote ones get them before they sample next."""
        local = self.workers.local_worker()
        local.set_weights(weights)
        self.workers.weights_changed(list(weights), local.get_global_vars())

    def save(self, checkpoint_dir: str | None = None) -> str:  # type: ignore[override]  # Tune's result is Tune's own
        """Writes a checkpoint and returns the path of a file in it, `<checkpoint_dir>/checkpoint_000010/checkpoint-10`.

        The checkpoint is the file's directory, `os.path.dirname(path)`; `restore` and all else take both. A program's
        own `save_checkpoint` returns another path in that directory, if it likes. Where it returns the directory, or
        nothing, this is the directory with a slash behind it.

        Under Tune, which keeps checkpoints itself and calls this, it returns what Tune's own `save` does; their
        directories have the iteration in their names all the same.

        Args:
            checkpoint_dir: Parent directory; None takes `logdir`.

        Raises:
            OSError: If it cannot be written; an older checkpoint of that name is left as it was.
            CheckpointError: If a program's own `save_checkpoint` returns a dict, which nothing would write.
        """
        if self._storage:  # under Tune, which keeps checkpoints itself
            checkpoint_paths.number_by_iteration(self._storage, self.iteration)
            return cast(str, super().save(checkpoint_dir))
        directory = checkpoint_paths.directory_for(checkpoint_dir or self.logdir, self.iteration)
        save: Any = self.save_checkpoint
        if type(self).save_checkpoint is not SavingMixin.save_checkpoint:  # a program's own finds the directory there
            os.makedirs(directory, exist_ok=True)
        if isinstance(save(directory), dict):
            raise CheckpointError(
                f"{type(self).__name__}: save_checkpoint() returned a dict, wanted files in the directory that it is "
                "given; what __getstate__() returns is written without one"
            )
        return checkpoint_paths.path_of(directory)

    def save_checkpoint(self, checkpoint_dir: str) -> str:  # type: ignore[override]  # its annotation lacks paths
        """Writes all that is needed to go on exactly into a directory: arrays and JSON, no code.

        Returns:
            The path of the file `checkpoint-N` in it, as RLlib's.
        """
        checkpointing.save(self, checkpoint_dir)
        return checkpoint_paths.leave_pointer(checkpoint_dir, self.iteration)

    def restore(self, checkpoint_path: Any, *, trust: bool = False) -> None:
        """Goes on from a checkpoint: the path that `save` returned, the checkpoint's directory, or Tune's object.

        Args:
            checkpoint_path: The checkpoint.
            trust: Whether classes that it names are imported, though they are neither built in nor named by this
                trainer's own config. Policies that the run had added can name such. It runs their code.

        Raises:
            CheckpointError: If it is missing, damaged, or of another algorithm, model or space, or names what is not
                trusted; this trainer is then as it was before.
        """
        with trusting() if trust else contextlib.nullcontext():
            if isinstance(checkpoint_path, Checkpoint) or not isinstance(checkpoint_path, (str, os.PathLike)):
                super().restore(checkpoint_path)
                return
            self.load_checkpoint(os.fspath(checkpoint_path))
            self._restored = True

    def load_checkpoint(self, checkpoint_path: Any) -> None:
        """Takes over the state of a checkpoint, given by its directory or a path in it."""
        checkpointing.load(self, checkpoint_paths.resolve_path(checkpoint_path))

    def save_to_object(self) -> bytes:
        """Returns a checkpoint as bytes (a zip of the checkpoint's files)."""
        return checkpointing.to_bytes(self)

    def restore_from_object(self, obj: bytes, *, trust: bool = False) -> None:
        """Goes on from what `save_to_object` returned; `trust` as for `restore`."""
        with trusting() if trust else contextlib.nullcontext():
            checkpointing.from_bytes(self, obj)

    def __getstate__(self) -> dict[str, Any]:
        """Returns the whole state, nested dicts of arrays and numbers: what checkpoints hold, as `restore` takes it.

        A subclass may add entries of its own (dicts, lists, arrays, numbers, texts) that its `__setstate__` reads.
        """
        return checkpointing.gather(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Goes on from what `__getstate__` of a trainer with the same config returned.

        Raises:
            CheckpointError: If this is no trainer yet: trainers are not pickled or copied.
        """
        if "workers" not in self.__dict__:
            raise CheckpointError(
                f"{type(self).__name__}: got a pickle or a copy of a trainer, which has files and processes; "
                "make one with the same config, and restore() a checkpoint, or set_weights()"
            )
        checkpointing.apply(self, state)

    def delete_checkpoint(self, checkpoint_path: str) -> None:
        """Removes the whole directory of a checkpoint, given by it or a path in it."""
        checkpoint_paths.delete(checkpoint_path)

    # --- policies for use elsewhere ---------------------------------------------------------------------------

    def export_policy_model(self, export_dir: str, policy_id: str = DEFAULT_POLICY_ID, onnx: int | None = None) -> None:
        """Writes a policy's network as RLlib did: `model.pt` (TorchScript) or, of TensorFlow's policies, a SavedModel.

        Args:
            export_dir: Directory, made if missing.
            policy_id: Which policy.
            onnx: Writes `model.onnx` of that opset instead.
        """
        self.workers.local_worker().policy_map[policy_id].export_model(export_dir, onnx)

    def export_policy(
        self,
        to: str,
        directory: str | os.PathLike[str],
        *,
        policy_id: str = DEFAULT_POLICY_ID,
        force: bool = False,
    ) -> Path:
        """Writes a policy as a file that acts without rlframe: from the environment's observation to its action.

        Args:
            to: "numpy", "onnx", "torchscript" or "savedmodel".
            directory: Where the file and its `contract.json` are written.
            policy_id: Which policy.
            force: Whether an export that is there is replaced.

        Returns:
            The path of the file.

        Raises:
            ConfigError: If it cannot be written, or would not act as the policy does; see
                `rlframe.serving.export.export_policy`.
        """
        from rlframe.serving.export import export_policy

        return export_policy(self, to, directory, policy_id=policy_id, force=force)

    def export_policy_checkpoint(
        self, export_dir: str, filename_prefix: str = "model", policy_id: str = DEFAULT_POLICY_ID
    ) -> None:
        """Writes a policy's whole state (weights, targets, optimiser) as arrays and JSON into `export_dir`."""
        from rlframe.utils.state_files import write_state

        policy = self.workers.local_worker().policy_map[policy_id]
        write_state(os.path.join(export_dir, filename_prefix), policy.get_state(), {"kind": "policy", "id": policy_id})

    def import_policy_model_from_h5(self, import_file: str, policy_id: str = DEFAULT_POLICY_ID) -> None:
        """Has a policy's model load an HDF5 file, by its method `import_from_h5(file)`; workers get the weights."""
        self.workers.local_worker().policy_map[policy_id].import_model_from_h5(import_file)
        self.workers.weights_changed()

    def import_model(self, import_file: str) -> None:
        """Does what `import_policy_model_from_h5` does, for the one policy of a single agent.

        Raises:
            FileNotFoundError: If there is no such file.
        """
        if not os.path.isfile(import_file):
            raise FileNotFoundError(f"import_file: {import_file!r} is no file")
        self.import_policy_model_from_h5(import_file)

    def _export_model(self, export_formats: list[str], export_dir: str) -> dict[str, str]:
        unknown = sorted(set(export_formats) - set(_FORMATS))
        if unknown:
            raise ConfigError(f"export format: got {unknown[0]!r}, wanted one of {', '.join(_FORMATS)}")
        paths = {name: os.path.join(export_dir, name) for name in export_formats}
        for name, path in paths.items():
            if name == "checkpoint":
                self.export_policy_checkpoint(path)
            else:
                opset = int(os.environ.get("ONNX_OPSET", "18")) if name == "onnx" else None
                self.export_policy_model(path, onnx=opset)
        return paths
