"""Networks of `rlframe.models.spec` in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rlframe.fast.dense_torch import dense
from rlframe.models.actor import BATCH_NORM_EPSILON, normalize_activation
from rlframe.models.catalog import ModelCatalog
from rlframe.models.spec import (
    GRU,
    LSTM,
    ActingView,
    AppendBias,
    BatchNorm,
    CustomNetwork,
    Dense,
    Layer,
    LayerNorm,
    Network,
    NoisyDense,
    Part,
    Variable,
)
from rlframe.models.torch import cells
from rlframe.models.torch.misc import AppendBiasLayer, activation_function, undrawn_linear
from rlframe.models.torch.noisy import NoisyLayer
from rlframe.models.torch.torch_modelv2 import TorchModelV2
from rlframe.tensor import ops

#: Limits of batch renormalisation: how far its scale and its shift may go.
MOST_SCALE, MOST_SHIFT = 3.0, 5.0


class TorchNetwork(nn.Module):
    """A network of layers; its submodules carry the layers' names.

    Args:
        spec: What it consists of.
    """

    def __init__(self, spec: Network) -> None:
        super().__init__()
        self.spec = spec
        rng = np.random.default_rng(int(torch.randint(2**62, ())))
        width = spec.in_size
        for layer in spec.layers:
            self.add_module(layer.name, _module(layer, width, rng))
            width = width + int(layer.units or 0) if layer.kind == "append_bias" else int(layer.units or 0)
        activations = [normalize_activation(getattr(layer, "activation", None)) for layer in spec.layers]
        self._bound = [
            (layer.name, activation, activation_function(activation))
            for layer, activation in zip(spec.layers, activations, strict=True)
        ]

    def forward(self, *inputs: Tensor, training: bool = False, frozen: bool = False) -> Tensor:
        """Returns the output of inputs that stand side by side.

        Args:
            *inputs: In the order of `spec.inputs`. Float `[B, n]` each.
            training: Whether batch normalisation goes by the batch, and follows it.
            frozen: Whether nobody asks for gradients of its weights, which then may be left out.

        Returns:
            Float `[B, out_size]`.
        """
        x = inputs[0] if len(inputs) == 1 else torch.cat(inputs, 1)
        # By name, not by reference: a replaced or deep-copied submodule is then the one that computes.
        modules: Any = self._modules
        for name, activation, function in self._bound:
            x = _run(modules[name], x, activation, function, training, frozen)
        return x

    def unroll(self, x: Tensor, states: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Returns the outputs `[S, T, out_size]` of sequences `[S, T, n]`, and the states behind their last steps.

        Args:
            x: Inputs side by side.
            states: The recurrent layers' states before the first step, `[S, ...]` each, as in `initial_states`.
        """
        modules: Any = self._modules
        before, after = iter(states), []
        for name, activation, function in self._bound:
            module = modules[name]
            if isinstance(module, (cells.GRU, cells.LSTM)):
                x, new = module(x, [next(before) for _ in range(module.states)])
                after += new
            else:
                x = _run(module, x.flatten(0, 1), activation, function).unflatten(0, x.shape[:2])
        return x, after

    def initial_states(self) -> list[Any]:
        """Returns the states that a sequence begins with, arrays `[S]`."""
        return list(self.spec.initial_states())

    def kernels(self) -> list[Tensor]:
        """Returns the weight matrices, `[out, in]` each; no biases."""
        return [parameter for parameter in self.parameters() if parameter.dim() > 1]


def _run(
    module: Any, x: Tensor, activation: str, function: Any, training: bool = False, frozen: bool = False
) -> Tensor:
    """Returns what a layer and its activation make of rows `[B, n]`."""
    if isinstance(module, BatchRenorm):
        x = module(x, training)
        return x if function is None else function(x)
    return dense(x, module, activation, function, frozen=frozen)


class TorchCustomNetwork(nn.Module):
    """A user's `TorchModelV2` as a network: it gets the inputs side by side as its observation.

    Args:
        spec: Widths, and the `model` section that names the model.
    """

    def __init__(self, spec: CustomNetwork) -> None:
        super().__init__()
        self.spec = spec
        self.model: Any = ModelCatalog.get_model_v2(*spec.spaces(), spec.out_size, dict(spec.config), "torch")
        spec.check(self.model)

    def forward(self, *inputs: Tensor, training: bool = False, frozen: bool = False) -> Tensor:
        """Returns the model's outputs `[B, out_size]` for inputs `[B, n]` side by side."""
        del frozen
        x = inputs[0] if len(inputs) == 1 else torch.cat(inputs, 1)
        outputs: Tensor = self.model({"obs": x, "is_training": training})[0]
        return outputs

    def unroll(self, x: Tensor, states: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Returns the model's outputs `[S, T, out_size]` of sequences `[S, T, n]`, and the states behind them."""
        sequences, steps = x.shape[:2]
        lens = torch.full((sequences,), steps, dtype=torch.int32, device=x.device)
        rows = x.reshape(sequences * steps, *self.spec.spaces()[0].shape)
        outputs, after = self.model({"obs": rows, "is_training": self.training}, states, lens)
        return outputs.unflatten(0, (sequences, steps)), after

    def initial_states(self) -> list[Any]:
        """Returns the states that a sequence begins with, arrays `[S]`."""
        return list(self.model.get_initial_state())

    def kernels(self) -> list[Tensor]:
        """Returns the weight matrices and filters; no biases."""
        return [parameter for parameter in self.parameters() if parameter.dim() > 1]


class Networks(TorchModelV2, nn.Module):
    """The networks of a policy as its model: each is an attribute, and so is each learned variable.

    Args:
        obs_space: Preprocessed observation space.
        action_space: Action space of the environment.
        num_outputs: Width of what the acting network gives.
        model_config: The `model` section of the config.
        name: Name of the model.
        parts: Networks and variables by name.
        acting: Name of the network that gives distribution inputs for observations.
        encoder: A `ModelV2` that makes features of observations for all of them; None where they take the observations.
        view: How the acting network sees observations that are not those of one agent; see `ActingView`.
    """

    #: No head of the acting network gives values.
    uses_value_function = False

    def __init__(  # noqa: PLR0913 - those of all models, and three
        self,
        obs_space: Any,
        action_space: Any,
        num_outputs: int,
        model_config: dict[str, Any],
        name: str,
        *,
        parts: Mapping[str, Part],
        acting: str,
        encoder: Any = None,
        view: ActingView | None = None,
    ) -> None:
        nn.Module.__init__(self)
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        self.parts, self.acting = dict(parts), acting
        self.encoder, self.view = encoder, view
        for part, spec in parts.items():
            if isinstance(spec, Variable):
                self.register_parameter(part, nn.Parameter(torch.tensor(spec.value, dtype=torch.float32)))
            else:
                made = TorchNetwork(spec) if isinstance(spec, Network) else TorchCustomNetwork(spec)
                self.add_module(part, made)

    def encode(self, obs: Tensor, training: bool = False) -> Tensor:
        """Returns what the networks take for observations `[B, ...]`: themselves, flat, or the encoder's features."""
        if self.encoder is None:
            return obs if obs.dtype == torch.float32 and obs.dim() == 2 else obs.float().flatten(1)
        features: Tensor = self.encoder({"obs": obs, "is_training": training})[0]
        return features

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns the acting network's outputs `[B, num_outputs]`."""
        obs = input_dict["obs_flat"] if self.encoder is None else input_dict["obs"]
        x, network = self.encode(obs), self._modules[self.acting]
        if self.view is not None:
            return self.view.act(network, x, state, seq_lens)
        if not state:
            return network(x), state  # type: ignore[misc]  # it is there
        outputs, after = network.unroll(ops.split_sequences(x, seq_lens), state)  # type: ignore[union-attr,operator]
        return outputs.flatten(0, 1), after

    def get_initial_state(self) -> list[Any]:
        """Returns what the acting network begins a sequence with."""
        made: list[Any] = self._modules[self.acting].initial_states()  # type: ignore[union-attr,operator]
        return made if self.view is None else self.view.states(made)

    def weights_of(self, part: str) -> dict[str, Any]:
        """Returns the parameters of a network, or a variable, by their names in the model."""
        found = self.named_parameters()
        return {name: value for name, value in found if name == part or name.startswith(f"{part}.")}

    def actor_spec(self) -> dict[str, Any] | None:
        """Returns what a NumPy actor acts by; None where acting needs the encoder, or a user's own model."""
        spec = self.parts[self.acting]
        if self.encoder is not None or not isinstance(spec, Network):
            return None
        return {"outputs": spec.prefixed(self.acting), "values": None, "shared": 0}


class SomeNetworks(nn.Module):
    """Some of a model's networks, themselves, under their names: what a target network copies.

    Args:
        model: The model.
        names: Which; "encoder" where there is one.
    """

    def __init__(self, model: Networks, names: tuple[str, ...]) -> None:
        super().__init__()
        self.register_module("encoder", None)
        for name in names:
            if model._modules.get(name) is not None:
                self.add_module(name, model._modules[name])

    encode = Networks.encode
    encoder: Any


class BatchRenorm(nn.Module):
    """Batch renormalisation; see `rlframe.models.spec.BatchNorm`."""

    running_mean: Tensor
    running_var: Tensor
    steps: Tensor

    def __init__(self, units: int, momentum: float, warmup: int) -> None:
        super().__init__()
        self.momentum, self.warmup = momentum, warmup
        self.weight, self.bias = nn.Parameter(torch.ones(units)), nn.Parameter(torch.zeros(units))
        self.register_buffer("running_mean", torch.zeros(units))
        self.register_buffer("running_var", torch.ones(units))
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x: Tensor, training: bool) -> Tensor:
        """Returns normalised rows `[B, n]`; in training by the batch's statistics, which the running ones follow."""
        running, running_var, steps = self.running_mean, self.running_var, self.steps
        running_std = torch.sqrt(running_var + BATCH_NORM_EPSILON)
        if not training:
            return (x - running) / running_std * self.weight + self.bias
        mean, variance = x.mean(0), x.var(0, unbiased=False)
        std = torch.sqrt(variance + BATCH_NORM_EPSILON)
        normal = (x - mean) / std
        with torch.no_grad():
            warm = (steps >= self.warmup).float()
            scale = 1.0 + warm * ((std / running_std).clamp(1.0 / MOST_SCALE, MOST_SCALE) - 1.0)
            shift = warm * ((mean - running) / running_std).clamp(-MOST_SHIFT, MOST_SHIFT)
            running.lerp_(mean, self.momentum)
            running_var.lerp_(variance, self.momentum)
            steps += 1.0
        return (normal * scale + shift) * self.weight + self.bias


class _Rescale(nn.Module):
    """An affine map without weights, from [−1, 1] to bounds."""

    half_range: Tensor
    centre: Tensor

    def __init__(self, low: tuple[float, ...], high: tuple[float, ...]) -> None:
        super().__init__()
        low_, high_ = torch.tensor(low), torch.tensor(high)
        self.register_buffer("half_range", (high_ - low_) / 2, persistent=False)
        self.register_buffer("centre", (high_ + low_) / 2, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Returns rows `[B, n]` within the bounds."""
        return x * self.half_range + self.centre


def _module(layer: Layer, in_size: int, rng: np.random.Generator) -> nn.Module:
    """Returns the module of a layer."""
    units = int(layer.units or 0)
    if isinstance(layer, Dense):
        linear = undrawn_linear(in_size, units)
        weight, bias = layer.initial.draw(rng, units, in_size)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(weight))
            linear.bias.copy_(torch.from_numpy(bias))
        return linear
    if isinstance(layer, NoisyDense):
        return NoisyLayer(in_size, units, activation=None)
    if isinstance(layer, LayerNorm):
        return nn.LayerNorm(units)
    if isinstance(layer, BatchNorm):
        return BatchRenorm(units, layer.momentum, layer.warmup)
    if isinstance(layer, (GRU, LSTM)):
        return (cells.GRU if isinstance(layer, GRU) else cells.LSTM)(in_size, units)
    return AppendBiasLayer(units) if isinstance(layer, AppendBias) else _Rescale(layer.low, layer.high)
