"""QMIX in PyTorch: networks, optimiser and clipping; see `qmix_policy`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from torch import Tensor

from rlframe.agents.qmix.qmix_policy import QMixPolicy, best_values, chosen_values, qmix_loss
from rlframe.agents.qmix.qmix_torch_model import QMixTorchModel
from rlframe.models.catalog import ModelCatalog
from rlframe.policy.torch.flat import flatten_parameters
from rlframe.policy.torch.target import TargetNetwork
from rlframe.policy.torch_policy import LearningRateSchedule, TorchPolicy

Stats = dict[str, Any]


class QMixTorchPolicy(QMixPolicy, TorchPolicy):
    """A group's agents with one recurrent network, a mixer of their values, and a target copy of both."""

    def __init__(self, obs_space: gym.Space[Any], action_space: gym.Space[Any], config: dict[str, Any]) -> None:
        self.read_spaces(obs_space, action_space, config)
        TorchPolicy.__init__(self, obs_space, action_space, config)
        self.target_network = TargetNetwork(self.model)
        self.target_models = {self.model: self.target_network.model}
        LearningRateSchedule.__init__(self, config["lr"], config["lr_schedule"])

    def make_model_and_dist(self) -> tuple[Any, Any]:
        """Returns the agents' network with its mixer, and the distribution of the group's actions."""
        dist_class, num_outputs = ModelCatalog.get_action_dist(self.action_space, framework="torch")
        model = QMixTorchModel(
            self.observation_space,
            self.action_space,
            num_outputs,
            self.config["model"],
            "group",
            layout=self.layout,
            mixer=self.config["mixer"],
            mixing_embed_dim=int(self.config["mixing_embed_dim"]),
        )
        return model, dist_class

    def optimizer(self) -> torch.optim.Optimizer:
        """Returns RMSProp with `lr`, `optim_alpha` and `optim_eps` over agents' network and mixer in one buffer."""
        parameters = list(self.model.parameters())
        self._flat_parameters = flatten_parameters(parameters)
        flat = parameters if self._flat_parameters is None else [self._flat_parameters.param]
        config = self.config
        return torch.optim.RMSprop(flat, lr=config["lr"], alpha=config["optim_alpha"], eps=config["optim_eps"])

    def extra_grad_process(self, optimizer: torch.optim.Optimizer, loss: Tensor) -> Stats:  # noqa: ARG002 - a hook
        """Clips the gradient's global norm to `grad_clip`."""
        return self.clip_gradients(optimizer, self.config["grad_clip"])


__all__ = ["QMixTorchPolicy", "best_values", "chosen_values", "qmix_loss"]
