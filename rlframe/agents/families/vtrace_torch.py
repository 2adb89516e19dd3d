"""Policies with V-trace in PyTorch: optimisers and the learner step; see `vtrace_policy`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlframe.agents.families.vtrace_policy import VTracePolicy
from rlframe.data.columns import OBS
from rlframe.policy.torch.flat import flatten_parameters
from rlframe.policy.torch_policy import TorchPolicy

Stats = dict[str, Any]


class VTraceTorchBase(VTracePolicy, TorchPolicy):
    """What policies with V-trace have of PyTorch."""

    def __init__(self, obs_space: Any, action_space: Any, config: dict[str, Any]) -> None:
        divisor = config["rollout_fragment_length"]  # of the first run: losses cut rows into fragments
        super().__init__(obs_space, action_space, config, get_batch_divisibility_req=divisor)

    def optimizer(self) -> Any:
        """Returns the optimiser that `opt_type` names; two of them with `_separate_vf_optimizer`."""
        config = self.config
        if not config["_separate_vf_optimizer"]:
            return self.make_optimizer(list(self.model.parameters()), config["lr"], flat=True)
        acting, valuing = self.split_weights()
        return [
            self.make_optimizer(acting, config["lr"], flat=False),
            self.make_optimizer(valuing, config["_lr_vf"], flat=False),
        ]

    def make_optimizer(self, weights: list[Any], lr: float, *, flat: bool) -> torch.optim.Optimizer:
        """Returns an optimiser over some weights; `flat` puts them into one buffer, which there can be one of."""
        config = self.config
        if config["opt_type"] == "adam":
            return self.adam(weights, lr=lr) if flat else torch.optim.Adam(weights, lr=lr)
        if flat:
            self._flat_parameters = flatten_parameters(weights)
            weights = weights if self._flat_parameters is None else [self._flat_parameters.param]
        eps = self.for_means(config["epsilon"])
        return torch.optim.RMSprop(weights, lr=lr, alpha=config["decay"], eps=eps, momentum=config["momentum"])

    def split_weights(self) -> tuple[list[Any], list[Any]]:
        """Returns the weights that actions depend on, and those that values depend on.

        Raises:
            ConfigError: If some are both.
        """
        named = list(self.model.named_parameters())
        obs = torch.zeros((2, *(self.observation_space.shape or ())), device=self.device)
        inputs = self.model({OBS: obs, "is_training": True}, [], None)[0]
        parts = []
        for output in (inputs, self.model.value_function()):
            found = torch.autograd.grad(output.sum(), [p for _, p in named], retain_graph=True, allow_unused=True)
            parts.append({name for (name, _), gradient in zip(named, found, strict=True) if gradient is not None})
        self.refuse_shared(sorted(parts[0] & parts[1]))
        with torch.no_grad():  # the model forgets the graph of the pass above, so that it can be copied
            self.model({OBS: obs, "is_training": True}, [], None)
        return [p for name, p in named if name not in parts[1]], [p for name, p in named if name in parts[1]]

    def set_learning_rate(self, lr: float) -> None:
        """Sets the rate of the policy's optimiser; that of separate values is constant."""
        for optimizer in self._optimizers[:1]:  # policies that only evaluate have none
            for group in optimizer.param_groups:
                group["lr"] = lr

    def extra_grad_process(self, optimizer: torch.optim.Optimizer, loss: Tensor) -> Stats:
        """Clips the gradient's global norm to `grad_clip`; fits RMSProp's ε to the rows."""
        if self.config["opt_type"] == "rmsprop":
            for group in optimizer.param_groups:
                group["eps"] = self.for_means(self.config["epsilon"])
        return self.clip_gradients(optimizer, self.for_means(self.config["grad_clip"]))

    def weights_norm(self) -> Tensor:
        """Returns the global L2 norm of the weights, a scalar."""
        weights = list(self.model.parameters()) if self._flat_parameters is None else [self._flat_parameters.param]
        norm: Tensor = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(w.detach()) for w in weights]))
        return norm


__all__ = ["VTraceTorchBase"]
