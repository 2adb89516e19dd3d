"""The default network for vectors, with RLlib's names of its layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from torch import nn

from rlframe.models.fcnet_spec import POPART_LAYER
from rlframe.models.layered_model import BehindMemory, FullyConnected
from rlframe.models.torch.layer_owner import TorchLayerOwner
from rlframe.models.torch.rllib_layers import RLlibLayers, slim, slim_stack
from rlframe.models.torch.torch_modelv2 import TorchModelV2


def _named(layers: Sequence[Any] | None, prefix: str) -> list[tuple[str, str]]:
    """Returns (submodule name, activation) of the layers whose names begin so."""
    return [(layer.name, layer.activation) for layer in layers or () if layer.name.startswith(prefix)]


class FullyConnectedNetwork(FullyConnected, TorchLayerOwner, RLlibLayers, TorchModelV2, nn.Module):
    """Dense layers from flat observations to outputs and, beside them, to a value; see `LayeredModel`.

    A subclass may compute its forward pass of them, and leave `_features` and `_last_flat_in` for `value_function`.
    Its submodules are `hidden_0`, …, `output`, `free_log_std`, `value_hidden_0`, …, `value`, `popart`. They are also
    found as `_hidden_layers`, `_logits`, `_value_branch_separate` and `_value_branch`.
    """

    _rllib_layers: ClassVar[Any] = {
        "_hidden_layers": lambda model: slim_stack(model, _named(model._spec.outputs, "hidden_")),
        "_logits": lambda model: slim(model._modules.get("output")),
        "_append_free_log_std": lambda model: model._modules.get("free_log_std"),
        "_value_branch_separate": lambda model: (
            None if model._spec.shared else slim_stack(model, _named(model._spec.values, "value_hidden_"))
        ),
        "_value_branch": lambda model: slim(model._modules.get("value"), model._modules.get(POPART_LAYER)),
    }
    _rllib_heads: ClassVar[Any] = {"_logits": "output", "_value_branch": "value"}
    _rllib_stacks: ClassVar[Any] = {
        "_hidden_layers": ("_trunk", "hidden_"),
        "_value_branch_separate": ("_value_layers", "value_hidden_"),
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.vf_share_layers = bool(self.model_config.get("vf_share_layers"))
        if "free_log_std" not in self._modules:
            self.free_log_std = False


class MemoryHeads(BehindMemory, FullyConnectedNetwork):
    """Outputs and a value behind a memory."""
