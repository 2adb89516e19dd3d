"""Models for use outside rlframe."""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class _Inference(nn.Module):
    """Preprocessed observations in, distribution inputs out."""

    def __init__(self, policy: Any) -> None:
        super().__init__()
        self.model = policy.model
        self._dist_inputs = policy.dist_inputs

    def forward(self, obs: Tensor) -> Tensor:
        inputs: Tensor = self._dist_inputs(obs)
        return inputs


def on_cpu(policy: Any) -> Any:
    """Returns the policy, or one of its class with its weights where it is on a GPU: files name devices."""
    if policy.device.type == "cpu":
        return policy
    config = {**policy.config, "num_gpus": 0, "num_gpus_per_worker": 0}
    twin = type(policy)(policy.observation_space, policy.action_space, config)
    twin.set_weights(policy.get_weights())
    return twin


def export_torch_model(policy: Any, export_dir: str, onnx: int | None) -> None:
    """Writes `model.pt` (TorchScript) or `model.onnx` into `export_dir`.

    Args:
        policy: A `TorchPolicy`.
        export_dir: Directory, made if missing.
        onnx: ONNX opset, or None for TorchScript.
    """
    os.makedirs(export_dir, exist_ok=True)
    policy = on_cpu(policy)
    space = policy.observation_space
    example = torch.from_numpy(np.zeros((1, *space.shape), space.dtype if space.dtype == np.uint8 else np.float32))
    module = _Inference(policy).eval()
    with torch.no_grad():
        if onnx is None:
            with warnings.catch_warnings():
                # TorchScript is deprecated, and still the format that C++ and mobile programs of the 1.x time load.
                warnings.simplefilter("ignore", DeprecationWarning)
                traced: Any = torch.jit.trace(module, example, check_trace=False)
                traced.save(os.path.join(export_dir, "model.pt"))
            return
        with warnings.catch_warnings():
            # The newer exporter wants a package of its own, onnxscript.
            warnings.simplefilter("ignore", DeprecationWarning)
            torch.onnx.export(
                module,
                (example,),
                os.path.join(export_dir, "model.onnx"),
                opset_version=onnx,
                input_names=["obs"],
                output_names=["action_dist_inputs"],
                dynamic_axes={"obs": {0: "batch"}, "action_dist_inputs": {0: "batch"}},
                dynamo=False,
            )
