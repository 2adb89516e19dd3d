"""RLlib's modules for PyTorch models: attention, gates, skip connections, and a decoder of images.

Parameters have RLlib's names and layouts, so state dicts of such modules go both ways.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own abbreviation
from torch import Tensor, distributions, nn

from rlframe.models.attention_positions import sinusoids
from rlframe.models.torch.misc import SlimFC, activation_module
from rlframe.rllib1x.model_utils import get_initializer
from rlframe.utils.framework import get_activation_fn


def _get_activation_fn(name: str) -> Any:
    """Returns the class of `torch.nn` for an activation's name."""
    return get_activation_fn(name, framework="torch")


class Reshape(nn.Module):
    """Gives tensors another shape.

    Args:
        shape: The sizes, -1 for the rest.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.shape = tuple(shape)

    def forward(self, x: Tensor) -> Tensor:
        """Returns a view of `x` in the shape."""
        return x.view(self.shape)


class GRUGate(nn.Module):
    """Mixes a layer's input x with its output y, as a GRU cell would.

        r = σ(y W_r + x U_r),  z = σ(y W_z + x U_z − b),  h = tanh(y W_h + (r ∘ x) U_h),  out = (1 − z) ∘ x + z ∘ h

    Args:
        dim: Width of x and y.
        init_bias: b at the beginning; a positive one makes the gate begin near x.
        **kwargs: Of `nn.Module`.

    Source: Parisotto et al. 2020, "Stabilizing Transformers for Reinforcement Learning", section 3.2.
    """

    def __init__(self, dim: int, init_bias: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        for name in ("_w_r", "_w_z", "_w_h", "_u_r", "_u_z", "_u_h"):
            self.register_parameter(name, nn.Parameter(nn.init.xavier_uniform_(torch.empty(dim, dim))))
        self._bias_z = nn.Parameter(torch.full((dim,), float(init_bias)))

    def forward(self, inputs: tuple[Tensor, Tensor], **kwargs: Any) -> Tensor:
        """Returns what is between x and y, for `inputs` (x, y) `[..., D]` each."""
        del kwargs
        x, y = inputs
        weights: Any = self._parameters

        def gate(letter: str, carried: Tensor) -> Tensor:
            mixed: Tensor = y @ weights[f"_w_{letter}"] + carried @ weights[f"_u_{letter}"]
            return mixed

        r, z = torch.sigmoid(gate("r", x)), torch.sigmoid(gate("z", x) - self._bias_z)
        return torch.lerp(x, torch.tanh(gate("h", r * x)), z)


class SkipConnection(nn.Module):
    """A layer whose input goes around it.

    Args:
        layer: The layer.
        fan_in_layer: Joins (input, output) of the layer, such as `GRUGate`; None adds them.
        **kwargs: Of `nn.Module`.
    """

    def __init__(self, layer: nn.Module, fan_in_layer: nn.Module | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._layer, self._fan_in_layer = layer, fan_in_layer

    def forward(self, inputs: Tensor, **kwargs: Any) -> Tensor:
        """Returns input and output joined; `kwargs` are for the layer."""
        outputs = self._layer(inputs, **kwargs)
        joined: Tensor = inputs + outputs if self._fan_in_layer is None else self._fan_in_layer((inputs, outputs))
        return joined


class MultiHeadAttention(nn.Module):
    """Attention of each step to itself and those before it.

    Args:
        in_dim: Width of the inputs.
        out_dim: Width of the outputs.
        num_heads: Number of heads, H.
        head_dim: Width of a head, d.
        **kwargs: Of `nn.Module`.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.
    """

    def __init__(self, in_dim: int, out_dim: int, num_heads: int, head_dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._num_heads, self._head_dim = num_heads, head_dim
        self._qkv_layer = SlimFC(in_dim, 3 * num_heads * head_dim, use_bias=False)
        self._linear_layer = SlimFC(num_heads * head_dim, out_dim, use_bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns outputs `[B, T, out]` of `inputs` `[B, T, in]`."""
        heads = (3, self._num_heads, self._head_dim)
        query, key, value = self._qkv_layer(inputs).unflatten(-1, heads).permute(2, 0, 3, 1, 4)
        gathered = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        outputs: Tensor = self._linear_layer(gathered.transpose(1, 2).flatten(2))
        return outputs


class RelativePositionEmbedding(nn.Module):
    """Sinusoids that stand for distances in time, the largest first.

    Args:
        out_dim: Width of the encodings.
        **kwargs: Of `nn.Module`.

    Source: Dai et al. 2019, "Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context", appendix B.
    """

    inverse_freq: Tensor

    def __init__(self, out_dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.out_dim = out_dim
        self.register_buffer("inverse_freq", 10000.0 ** -(torch.arange(0.0, out_dim, 2.0) / out_dim))

    def forward(self, seq_length: int) -> Tensor:
        """Returns the encodings of the distances `seq_length` - 1 to 0, float `[seq_length, 1, out]`."""
        encoded = torch.from_numpy(sinusoids(int(seq_length), self.out_dim)).to(self.inverse_freq.device)
        return encoded.flip(0).unsqueeze(1)


class RelativeMultiHeadAttention(nn.Module):
    """Attention of each step to a memory, itself and those before it, by content and by distance.

        score_ij = ((q_i + u) · k_j + (q_i + v) · W_R R_{i−j}) / √d

    Args:
        in_dim: Width of the inputs.
        out_dim: Width of the outputs; the encodings of distances have it too, so it is `in_dim`.
        num_heads: Number of heads, H.
        head_dim: Width of a head, d.
        input_layernorm: Whether memory and inputs are normalised first.
        output_activation: Activation behind the outputs: a name, a module class or None.
        **kwargs: Of `nn.Module`.

    Source: Dai et al. 2019, section 3.3.
    """

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        num_heads: int,
        head_dim: int,
        input_layernorm: bool = False,
        output_activation: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        size = num_heads * head_dim
        self._num_heads, self._head_dim = num_heads, head_dim
        self._qkv_layer = SlimFC(in_dim, 3 * size, use_bias=False)
        self._linear_layer = SlimFC(size, out_dim, use_bias=False, activation_fn=output_activation)
        self._uvar = nn.Parameter(nn.init.xavier_uniform_(torch.empty(num_heads, head_dim)))
        self._vvar = nn.Parameter(nn.init.xavier_uniform_(torch.empty(num_heads, head_dim)))
        self._pos_proj = SlimFC(in_dim, size, use_bias=False)
        self._rel_pos_embedding = RelativePositionEmbedding(out_dim)
        self._input_layernorm = nn.LayerNorm(in_dim) if input_layernorm else None

    def forward(self, inputs: Tensor, memory: Tensor | None = None) -> Tensor:
        """Returns outputs `[B, T, out]` of `inputs` `[B, T, in]` after a `memory` `[B, M, in]`, without gradient."""
        steps = inputs.shape[1]
        context = inputs if memory is None else torch.cat([memory.detach(), inputs], dim=1)
        if self._input_layernorm is not None:
            context = self._input_layernorm(context)
        total, heads = context.shape[1], (self._num_heads, self._head_dim)
        query, key, value = self._qkv_layer(context).unflatten(-1, (3, *heads)).unbind(2)
        query = query[:, total - steps :]
        distances = self._pos_proj(self._rel_pos_embedding(total)).reshape(total, *heads)
        scores = torch.einsum("bihd,bjhd->bijh", query + self._uvar, key)
        scores = scores + self.rel_shift(torch.einsum("bihd,jhd->bijh", query + self._vvar, distances))
        later = torch.ones(steps, total, dtype=torch.bool, device=scores.device).triu(total - steps + 1)
        weights = (scores / math.sqrt(self._head_dim)).masked_fill(later[..., None], -torch.inf).softmax(dim=2)
        outputs: Tensor = self._linear_layer(torch.einsum("bijh,bjhd->bihd", weights, value).flatten(2))
        return outputs

    @staticmethod
    def rel_shift(x: Tensor) -> Tensor:
        """Returns scores by step and distance as scores by step and earlier step. `[B, T, M + T, H]` to the same.

        Column j of row i is what was in column j + T − 1 − i; what is later than the row means nothing.
        """
        batch, rows, columns, heads = x.shape
        padded = F.pad(x, (0, 0, 1, 0)).reshape(batch, columns + 1, rows, heads)
        return padded[:, 1:].reshape(batch, rows, columns, heads)


class ConvTranspose2DStack(nn.Module):
    """Transposed convolutions from a vector to the means of an image whose pixels are normal with variance 1.

    Args:
        input_size: Width of the vectors.
        filters: [in_channels, kernel, stride] of every transposed convolution.
        initializer: Of the kernels; see `get_initializer`.
        bias_init: Biases at the beginning.
        activation_fn: Activation between the convolutions.
        output_shape: Channels, height and width of the image.
    """

    def __init__(
        self,
        *,
        input_size: int,
        filters: Sequence[Sequence[int]] = ((1024, 5, 2), (128, 5, 2), (64, 6, 2), (32, 6, 2)),
        initializer: Any = "default",
        bias_init: float = 0.0,
        activation_fn: Any = "relu",
        output_shape: Sequence[int] = (3, 64, 64),
    ) -> None:
        super().__init__()
        self.output_shape = tuple(output_shape)
        channels = [int(layer[0]) for layer in filters] + [self.output_shape[0]]
        layers: list[nn.Module] = [nn.Linear(input_size, channels[0]), Reshape((-1, channels[0], 1, 1))]
        for index, (_, kernel, stride) in enumerate(filters):
            conv = nn.ConvTranspose2d(channels[index], channels[index + 1], kernel, stride)
            get_initializer(initializer, framework="torch")(conv.weight)
            nn.init.constant_(conv.bias, bias_init)  # type: ignore[arg-type]  # there is one
            activation = activation_module(activation_fn) if index < len(filters) - 1 else None
            layers += [conv] if activation is None else [conv, activation]
        self._model = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> distributions.Distribution:
        """Returns the distribution of images `[..., C, H, W]` for vectors `[..., input_size]`."""
        mean = self._model(x).view(*x.shape[:-1], *self.output_shape)
        return distributions.Independent(distributions.Normal(mean, 1.0), len(self.output_shape))
