"""RLlib's models for AlphaZero, in PyTorch: layers that are shared, and those of the actor and the critic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rlframe.models.obs_layout import restore_original_dimensions
from rlframe.models.preprocessors import get_preprocessor
from rlframe.models.torch.torch_modelv2 import TorchModelV2

Flatten = nn.Flatten


def convert_to_tensor(arr: Any) -> Tensor:
    """Returns a tensor of an array or a list of arrays; float64 becomes float32."""
    tensor = torch.from_numpy(np.asarray(arr))
    return tensor.float() if tensor.dtype == torch.float64 else tensor


class ActorCriticModel(TorchModelV2, nn.Module):
    """A model of what `obs` of the observation has; subclasses set `shared_layers`, `actor_layers`, `critic_layers`.

    Args:
        obs_space: The preprocessed space of a Dict with `obs` and `action_mask`.
        action_space: A Discrete space.
        num_outputs: A, the number of actions.
        model_config: The `model` section.
        name: The model's name.
    """

    shared_layers: nn.Module
    actor_layers: nn.Module
    critic_layers: nn.Module

    def __init__(self, obs_space: Any, action_space: Any, num_outputs: int, model_config: Any, name: str) -> None:
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.preprocessor = get_preprocessor(obs_space.original_space)(obs_space.original_space)
        self._value_out: Tensor | None = None

    def forward(self, input_dict: Any, state: Any, seq_lens: Any) -> tuple[Tensor, Any]:
        """Returns logits, float `[B, A]`, of `input_dict["obs"]`: the whole observation, or what its `obs` is."""
        obs = input_dict["obs"]
        features = self.shared_layers((obs["obs"] if isinstance(obs, Mapping) else obs).float())
        self._value_out = self.critic_layers(features)
        return self.actor_layers(features), state or []

    def value_function(self) -> Tensor:
        """Returns values `[B]` of what `forward` saw last."""
        assert self._value_out is not None, "call forward() first"
        return self._value_out.reshape(-1)

    def compute_priors_and_value(self, obs: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Returns probabilities of the actions `[A]` and the value of one observation of the environment."""
        rows = convert_to_tensor([self.preprocessor.transform(obs)]).to(next(self.parameters()).device)
        with torch.no_grad():
            logits, _ = self.forward(restore_original_dimensions(rows, self.obs_space, "torch"), None, [1])
            return logits.softmax(-1)[0].cpu().numpy(), self.value_function()[0].cpu().numpy()


class DenseModel(ActorCriticModel):
    """Two linear layers of 256 units, and one each for actor and critic."""

    def __init__(self, obs_space: Any, action_space: Any, num_outputs: int, model_config: Any, name: str) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        size = obs_space.original_space["obs"].shape[0]
        self.shared_layers = nn.Sequential(nn.Linear(size, 256), nn.Linear(256, 256))
        self.actor_layers = nn.Sequential(nn.Linear(256, num_outputs))
        self.critic_layers = nn.Sequential(nn.Linear(256, 1))


class ConvNetModel(ActorCriticModel):
    """Three convolutions over boards `[C, H, W]`; `custom_model_config` says `in_channels` and `feature_dim`."""

    def __init__(self, obs_space: Any, action_space: Any, num_outputs: int, model_config: Any, name: str) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        channels, size = (model_config["custom_model_config"][key] for key in ("in_channels", "feature_dim"))
        self.shared_layers = nn.Sequential(
            nn.Conv2d(channels, 32, 4, stride=2), nn.Conv2d(32, 64, 2), nn.Conv2d(64, 64, 2), nn.Flatten(),
            nn.LazyLinear(size),
        )  # fmt: skip
        self.shared_layers(torch.zeros(1, *obs_space.original_space["obs"].shape))  # counts the last layer's inputs
        self.actor_layers = nn.Sequential(nn.Linear(size, num_outputs))
        self.critic_layers = nn.Sequential(nn.Linear(size, 1))
