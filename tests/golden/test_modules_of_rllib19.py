"""RLlib's modules at their paths compute what those of RLlib 1.9.2 do; from the same weights, in TensorFlow too.

`rllib19_modules.npz` is what `rllib19_modules.py` wrote beside RLlib 1.9.2.
"""

from __future__ import annotations

import pathlib
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from rlframe.models.torch.modules import GRUGate, MultiHeadAttention, RelativeMultiHeadAttention, SkipConnection
from rlframe.models.torch.modules.convtranspose2d_stack import ConvTranspose2DStack
from rlframe.models.torch.modules.relative_multi_head_attention import RelativePositionEmbedding

MODULES: dict[str, Any] = {
    "gate": lambda: GRUGate(4, 2.0),
    "attention": lambda: MultiHeadAttention(4, 5, 2, 3),
    "relative": lambda: RelativeMultiHeadAttention(4, 4, 2, 3, input_layernorm=True, output_activation="relu"),
    "skip": lambda: SkipConnection(RelativeMultiHeadAttention(4, 4, 2, 3), GRUGate(4)),
    "decoder": lambda: ConvTranspose2DStack(input_size=3, filters=((4, 3, 2), (5, 2, 2)), output_shape=(2, 6, 6)),
    "positions": lambda: RelativePositionEmbedding(6),
}


@cache
def recorded() -> dict[str, Any]:
    with np.load(pathlib.Path(__file__).with_name("rllib19_modules.npz")) as file:
        return dict(file)


def part(case: str, kind: str) -> dict[str, Any]:
    prefix = f"{case}|{kind}|"
    return {name.removeprefix(prefix): array for name, array in recorded().items() if name.startswith(prefix)}


@pytest.mark.parametrize("case", MODULES)
def test_torch_module_computes_what_rllibs_does(case: str) -> None:
    module = MODULES[case]()
    module.load_state_dict({name: torch.from_numpy(array) for name, array in part(case, "weights").items()})
    inputs: list[Any] = [torch.from_numpy(array) for array in part(case, "inputs").values()]
    if case == "gate":
        made = module(tuple(inputs))
    elif case == "positions":
        made = module(5)
    else:
        made = module(inputs[0], memory=inputs[1]) if len(inputs) > 1 else module(inputs[0])
    outputs = (made.mean if case == "decoder" else made).detach().numpy()
    np.testing.assert_allclose(outputs, part(case, "outputs")["0"], atol=1e-5)


def kernels(case: str, names: list[str]) -> list[Any]:
    weights = part(case, "weights")
    return [weights[name].T if name.endswith("_model.0.weight") else weights[name] for name in names]


@pytest.mark.parametrize("case", ["gate", "attention", "relative"])
def test_tf_layer_computes_what_rllibs_module_does(case: str) -> None:
    pytest.importorskip("tensorflow")
    from rlframe.models.tf import layers

    qkv, linear, position = "_qkv_layer._model.0.weight", "_linear_layer._model.0.weight", "_pos_proj._model.0.weight"
    inputs = list(part(case, "inputs").values())
    if case == "gate":
        layer: Any = layers.GRUGate(2.0)
        given: Any = (tuple(inputs),)
        names = ["_w_r", "_w_z", "_w_h", "_u_r", "_u_z", "_u_h", "_bias_z"]
    elif case == "attention":
        layer, given, names = layers.MultiHeadAttention(5, 2, 3), inputs, [qkv, linear]
    else:
        layer = layers.RelativeMultiHeadAttention(4, 2, 3, input_layernorm=True, output_activation="relu")
        layer._input_layernorm.epsilon = 1e-5  # torch's, Keras' is 1e-3
        given = inputs
        norm = ["_input_layernorm.weight", "_input_layernorm.bias"]
        names = ["_uvar", "_vvar", qkv, linear, position, *norm]
    layer(*given)
    layer.set_weights(kernels(case, names))
    np.testing.assert_allclose(layer(*given), part(case, "outputs")["0"], atol=1e-5)
