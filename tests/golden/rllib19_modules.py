"""Wrote `rllib19_modules.npz`: weights, inputs and outputs of RLlib 1.9.2's modules for torch.

Runs beside RLlib, not here: Python 3.8, ray[rllib]==1.9.2, torch 1.13.1; `python rllib19_modules.py OUTPUT.npz`.
"""

import sys

import numpy as np
import torch
from ray.rllib.models.torch.modules import GRUGate, MultiHeadAttention, RelativeMultiHeadAttention, SkipConnection
from ray.rllib.models.torch.modules.convtranspose2d_stack import ConvTranspose2DStack
from ray.rllib.models.torch.modules.relative_multi_head_attention import RelativePositionEmbedding

MEMORY = [(2, 3, 4), (2, 2, 4)]
MODULES = {
    "gate": (GRUGate(4, 2.0), [(3, 4), (3, 4)]),
    "attention": (MultiHeadAttention(4, 5, 2, 3), [(2, 3, 4)]),
    "relative": (
        RelativeMultiHeadAttention(4, 4, 2, 3, input_layernorm=True, output_activation="relu"),
        [(2, 3, 4), (2, 2, 4)],
    ),
    "skip": (SkipConnection(RelativeMultiHeadAttention(4, 4, 2, 3), GRUGate(4)), MEMORY),
    "decoder": (ConvTranspose2DStack(input_size=3, filters=((4, 3, 2), (5, 2, 2)), output_shape=(2, 6, 6)), [(2, 3)]),
    "positions": (RelativePositionEmbedding(6), []),
}
arrays = {}
rng = np.random.RandomState(0)
for name, (module, shapes) in MODULES.items():
    for key, tensor in module.state_dict().items():
        if key != "inverse_freq" and not key.endswith(".inverse_freq"):
            tensor.copy_(torch.from_numpy(rng.normal(0, 0.5, tensor.shape).astype(np.float32)))
        arrays[f"{name}|weights|{key}"] = tensor.numpy()
    inputs = [torch.from_numpy(rng.normal(size=shape).astype(np.float32)) for shape in shapes]
    arrays.update({f"{name}|inputs|{index}": tensor.numpy() for index, tensor in enumerate(inputs)})
    with torch.no_grad():
        if name == "gate":
            made = module(tuple(inputs))
        elif name == "positions":
            made = module(5)
        else:
            made = module(inputs[0], memory=inputs[1]) if len(inputs) > 1 else module(inputs[0])
    arrays[f"{name}|outputs|0"] = (made.mean if name == "decoder" else made).numpy()
np.savez_compressed(sys.argv[1], **arrays)
