"""Models for use outside rlframe."""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rlframe.data.columns import OBS, STATE_IN_PREFIX
from rlframe.policy.recurrent_context import RecurrentContext


class _Inference(nn.Module):
    """A policy's network as RLlib's exported models were called; `dist_inputs` takes the observations alone."""

    def __init__(self, policy: Any) -> None:
        super().__init__()
        self.model = policy.model
        self._dist_inputs = policy.dist_inputs
        self._remembers = policy.is_recurrent()

    def dist_inputs(self, obs: Tensor) -> Tensor:
        inputs: Tensor = self._dist_inputs(obs)
        return inputs

    def forward(
        self, input_dict: dict[str, Tensor], states: list[Tensor], seq_lens: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        if not self._remembers:
            return self.dist_inputs(input_dict[OBS]), states  # one at least, as tracing gives back no empty list
        outputs, after = self.model({**input_dict, "is_training": False}, states, seq_lens)
        return outputs, list(after)


class _Plain(nn.Module):
    """The same for ONNX, whose inputs are tensors: `state_ins` goes through."""

    def __init__(self, inference: _Inference) -> None:
        super().__init__()
        self.inference = inference

    def forward(self, obs: Tensor, state_ins: Tensor) -> tuple[Tensor, Tensor]:
        return self.inference.dist_inputs(obs), state_ins * 1.0


def on_cpu(policy: Any) -> Any:
    """Returns the policy, or one of its class with its weights where it is on a GPU: files name devices."""
    if policy.device.type == "cpu":
        return policy
    config = {**policy.config, "num_gpus": 0, "num_gpus_per_worker": 0}
    twin = type(policy)(policy.observation_space, policy.action_space, config)
    twin.set_weights(policy.get_weights())
    return twin


def export_torch_model(policy: Any, export_dir: str, onnx: int | None) -> None:
    """Writes `model.pt` (TorchScript) or `model.onnx` into `export_dir`, called as RLlib's.

    `module({"obs": obs}, states, seq_lens)` gives distribution inputs and the next states; without memory `states` is
    one tensor of any kind. `module.dist_inputs(obs)` is there without memory. ONNX: `obs`, `state_ins` to `output`,
    `state_outs`.

    Args:
        policy: A `TorchPolicy`.
        export_dir: Directory, made if missing.
        onnx: ONNX opset, or None for TorchScript.

    Raises:
        ValueError: For ONNX and a policy with memory.
    """
    policy = on_cpu(policy)
    if onnx is not None and policy.is_recurrent():
        raise ValueError(
            f"onnx: got {onnx} for {type(policy).__name__}, which has memory; call trainer.export_policy('onnx', path)"
        )
    os.makedirs(export_dir, exist_ok=True)
    space = policy.observation_space
    obs = torch.from_numpy(np.zeros((1, *space.shape), space.dtype if space.dtype == np.uint8 else np.float32))
    module = _Inference(policy).eval()
    with torch.no_grad(), warnings.catch_warnings():
        # TorchScript is deprecated, and still the format that C++ and mobile programs of the 1.x time load; the newer
        # exporter to ONNX wants a package of its own, onnxscript.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", torch.jit.TracerWarning)  # type: ignore[attr-defined]  # checks of sizes
        if onnx is None:
            traced = torch.jit.trace_module(module, _example_calls(policy, obs), check_trace=False)
            traced.save(os.path.join(export_dir, "model.pt"))
            return
        torch.onnx.export(
            _Plain(module),
            (obs, torch.zeros(1)),
            os.path.join(export_dir, "model.onnx"),
            opset_version=onnx,
            input_names=[OBS, "state_ins"],
            output_names=["output", "state_outs"],
            dynamic_axes={OBS: {0: "batch"}, "output": {0: "batch"}},
            dynamo=False,
        )


def _example_calls(policy: Any, obs: Tensor) -> dict[str, Any]:
    """Returns by method of `_Inference` what it is traced with."""
    if not policy.is_recurrent():
        return {"forward": ({OBS: obs}, [torch.zeros(1)], torch.ones(1, dtype=torch.int32)), "dist_inputs": obs}
    batch = RecurrentContext(policy, 1).inputs(obs.numpy())
    columns = {name: torch.as_tensor(column) for name, column in batch.items() if not name.startswith(STATE_IN_PREFIX)}
    states = [torch.as_tensor(state)[None] for state in policy.get_initial_state()]
    return {"forward": ({OBS: obs, **columns}, states, torch.ones(1, dtype=torch.int32))}
