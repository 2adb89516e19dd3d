"""What a torch policy is built of: model, optimisers, target network, random streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from rlframe.config.common import ONLY_EVALUATES
from rlframe.data.sample_batch import SampleBatch
from rlframe.models.torch.check_model import check_model
from rlframe.models.torch.networks import SomeNetworks
from rlframe.models.torch.random_stream import RandomStream
from rlframe.models.torch.torch_modelv2 import TorchModelV2
from rlframe.policy.learning_parts import LearningParts
from rlframe.policy.parts import WHOLE_MODEL, OptimizerSpec, RMSPropSpec
from rlframe.policy.torch.flat import FlatAdam, FlatParameters, TargetNetwork, flatten_parameters
from rlframe.policy.torch.flat_optimizers import FlatRMSProp
from rlframe.policy.torch.own_gradients import has_own_gradients
from rlframe.policy.torch.second_order import TorchSecondOrder
from rlframe.policy.users_code import learns_own_way, makes_own_values, method, overridden_by_user


class TorchParts(LearningParts):
    """How a `TorchPolicy` makes what its class says that it consists of."""

    #: The buffer of its parameters, where one optimiser steps all of them.
    _flat_parameters: FlatParameters | None

    def seeded(self: Any, *path: int | str) -> Any:
        """Returns a context in which torch draws from this policy's own stream named by `path`."""
        return _SeededTorch(self.stream_seed(*path))

    def check_model(self: Any, model: Any, num_outputs: int | None) -> None:
        """Raises a ValueError where the model gives something else than `num_outputs` numbers per row."""
        values = (self.wants_values or self.learns_values) and not makes_own_values(self)
        model.to(self.device)  # a layer that it shares with another policy's model is there already
        check_model(model, self.observation_space, num_outputs, values=values, several=learns_own_way(self))

    def _make_optimizers(self: Any) -> list[torch.optim.Optimizer]:
        self._give_streams("model", self.model)
        if self.config.get(ONLY_EVALUATES) and not overridden_by_user(type(self), "optimizer"):  # it may leave more
            return []
        computes = overridden_by_user(type(self), "compute_gradients")
        if has_own_gradients(type(self)) and not (computes and self.own_steps):  # steps that no gradient is for
            self._update, self._keeps_graph = self._update_by_own_gradients, True
        optimizers = self._chosen_optimizers()
        replaced = self.exploration.get_exploration_optimizer(optimizers)
        return optimizers if replaced is None else list(replaced)

    def optimizer(self: Any) -> torch.optim.Optimizer | list[torch.optim.Optimizer]:
        """Returns the list of optimisers: those of `optimizers`, or Adam with `config["lr"]` on all parameters.

        A class of a user's own may return one that is no list.
        """
        if not self.optimizer_specs:
            return [self.adam(self.model.parameters(), lr=self.config["lr"])]
        made = [self._made_of(spec, list(weights.values())) for spec, weights in self._weights_by_optimizer()]
        if len(made) > 1 or self.own_steps:
            self._flat_parameters = None  # each optimiser has a buffer of its own
        return made

    def _made_of(self: Any, spec: OptimizerSpec, parameters: list[Any]) -> torch.optim.Optimizer:
        """Returns the optimiser that a spec describes, over parameters in one buffer where they can share one."""
        if not isinstance(spec, RMSPropSpec):
            adam: torch.optim.Optimizer = self.adam(parameters, lr=spec.lr, eps=spec.eps)
            return adam
        options = {"lr": spec.lr, "alpha": spec.decay, "eps": self.epsilon(spec), "momentum": spec.momentum}
        self._flat_parameters = flatten_parameters(parameters)
        if self._flat_parameters is None:
            return torch.optim.RMSprop(parameters, **options)
        return FlatRMSProp(self._flat_parameters, **options)

    def adam(self: Any, parameters: Any, *, lr: float, eps: float = 1e-8) -> torch.optim.Optimizer:
        """Returns fused Adam over `parameters` in one buffer where they can share one, plain Adam otherwise."""
        params = [p for p in parameters if p.requires_grad]
        if not params:
            return torch.optim.Adam([nn.Parameter(torch.zeros(1))], lr=lr, eps=eps)
        self._flat_parameters = flatten_parameters(params)
        if self._flat_parameters is None:
            return torch.optim.Adam(params, lr=lr, eps=eps)
        return FlatAdam(self._flat_parameters, lr=lr, eps=eps)

    def _make_target_network(self: Any, names: tuple[str, ...]) -> None:
        online = self.model if names == WHOLE_MODEL else SomeNetworks(self.model, names)
        self.target_network = TargetNetwork(online, self.target_model)
        self.target_network.update()
        self.target_model = self.target_network.model
        self._give_streams("target", self.target_model)
        self.target_models = {self.model: self.target_model}
        self.components["target_network"] = self.target_network

    def make_generator(self: Any, *path: int | str) -> torch.Generator:
        """Returns a random stream of the policy's own, named by `path`, on its device."""
        return torch.Generator(self.device).manual_seed(self.stream_seed(*path))

    def _give_streams(self: Any, role: str, networks: Any) -> None:
        """Gives models of users' own the random streams that they draw from."""
        for name, model in networks.named_modules():
            if isinstance(model, TorchModelV2) and overridden_by_user(type(model), "forward"):
                model.random_stream = RandomStream(self.stream_seed(role, "forward", name), self.device)

    def _loss_of_zeros(self: Any, samples: SampleBatch, stats_fn: Callable[[Any, Any], Any] | None) -> None:
        batch = self._lazy_tensor_dict(self._learned_columns(samples))
        batch.set_training(True)
        training = self.model.training
        self.model.eval()  # layers that follow their inputs' statistics must not follow zeros
        if self._has_own_loss():
            method(self, "loss")(self.model, self.dist_class, batch)
        if stats_fn is not None:
            stats_fn(self, batch)
        self.model.train(training)

    def _generators(self: Any) -> dict[str, torch.Generator | RandomStream]:
        """Returns the random streams that modules of the policy own, by module name."""
        named = [
            pair for prefix, model in self._modules_by_role().items() for pair in model.named_modules(prefix=prefix)
        ]
        found = {name: getattr(module, "generator", None) for name, module in named}
        found |= {f"{name}.forward": getattr(module, "random_stream", None) for name, module in named}
        return {name: made for name, made in found.items() if isinstance(made, torch.Generator | RandomStream)}

    def second_order(self: Any, name: str) -> TorchSecondOrder:
        """Returns the loss of networks that the policy steps itself, and its `divergence`, with their derivatives."""
        return TorchSecondOrder(self, name)


class _SeededTorch:
    """A context in which torch's global stream is a given one; the old one goes on afterwards."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __enter__(self) -> None:
        self._saved = torch.get_rng_state()
        torch.manual_seed(self.seed)

    def __exit__(self, *exc: object) -> None:
        torch.set_rng_state(self._saved)
