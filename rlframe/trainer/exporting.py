"""A trainer's policies for use elsewhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rlframe.data.sample_batch import DEFAULT_POLICY_ID
from rlframe.utils.errors import ConfigError

_FORMATS = ("checkpoint", "model", "onnx")


class ExportingMixin:
    """Export methods of a `Trainer`."""

    workers: Any
    logdir: Any

    def export_policy_model(self, export_dir: str, policy_id: str = DEFAULT_POLICY_ID, onnx: int | None = None) -> None:
        """Writes a policy's network as `model.pt` (TorchScript: preprocessed obs [B, ...] to distribution inputs).

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
