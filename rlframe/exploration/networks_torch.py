"""The networks of intrinsic rewards in PyTorch; `networks_tf` has the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rlframe.models.catalog import ModelCatalog, features_class
from rlframe.models.torch.misc import activation_function

Array = NDArray[Any]
State = dict[str, Any]
#: Hidden layers and their activation.
Hidden = tuple[Sequence[int], str]


class Networks:
    """Named networks, and Adam over those that learn.

    Args:
        networks: Networks by name.
        learning: Names of those that learn.
        lr: Learning rate.
    """

    def __init__(self, networks: Mapping[str, nn.Module], learning: Sequence[str] = (), lr: float = 1e-3) -> None:
        self.modules = nn.ModuleDict(dict(networks))
        named = [pair for name in learning for pair in self.modules[name].named_parameters(prefix=name)]
        self.parameters = dict(named)
        self.optimizer = torch.optim.Adam(self.parameters.values(), lr=lr) if named else None

    def step(self, loss: Tensor) -> None:
        """Does one Adam step on a loss."""
        assert self.optimizer is not None
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def get_state(self) -> State:
        """Returns weights and Adam's moments by name, and the number of steps."""
        moments = {} if self.optimizer is None else self.optimizer.state
        states = {name: moments[p] for name, p in self.parameters.items() if p in moments}
        return {
            "weights": {name: _array(tensor) for name, tensor in self.modules.state_dict().items()},
            "step": int(next(iter(states.values()))["step"]) if states else 0,
            "exp_avg": {name: _array(state["exp_avg"]) for name, state in states.items()},
            "exp_avg_sq": {name: _array(state["exp_avg_sq"]) for name, state in states.items()},
        }

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` returned, here or in the other framework."""
        self.modules.load_state_dict({name: _tensor(array) for name, array in state["weights"].items()})
        for name, p in self.parameters.items() if self.optimizer is not None and state["step"] else ():
            if name in state["exp_avg"]:
                kept = {key: _tensor(state[key][name]) for key in ("exp_avg", "exp_avg_sq")}
                self.optimizer.state[p] = {"step": torch.tensor(float(state["step"])), **kept}  # type: ignore[union-attr]


class CuriosityNetworks(Networks):
    """Features, inverse and forward model; see `rlframe.exploration.curiosity.Curiosity`.

    Args:
        obs_space: Preprocessed observation space.
        action_space: The environment's action space.
        counts: Choices of each component of actions.
        feature_dim: Size of the features, F.
        config: The `model` section of the features' network.
        inverse: Hidden layers and activation of the inverse model.
        forward: Hidden layers and activation of the forward model.
        beta: Weight of the forward model's loss.
        lr: Learning rate.
        seed: Of the initial weights.
    """

    def __init__(  # noqa: PLR0913
        self,
        obs_space: Any,
        action_space: Any,
        *,
        counts: Sequence[int],
        feature_dim: int,
        config: dict[str, Any],
        inverse: Hidden,
        forward: Hidden,
        beta: float,
        lr: float,
        seed: int,
    ) -> None:
        with _seeded(seed):
            networks = {
                "features": _features(obs_space, action_space, feature_dim, config),
                "inverse": _Dense(2 * feature_dim, inverse, sum(counts)),
                "prediction": _Dense(feature_dim + sum(counts), forward, feature_dim),
            }
        super().__init__(networks, tuple(networks), lr)
        self.counts, self.beta = list(counts), beta

    def learn(self, obs: Array, next_obs: Array, actions: Array) -> Array:
        """Returns ½ ‖ φ̂(s_{t+1}) − φ(s_{t+1}) ‖² of each row, float32 `[B]`, then does a step on the loss.

        Args:
            obs: `[B, ...]`.
            next_obs: `[B, ...]`.
            actions: One-hot choices, float `[B, sum of counts]`.
        """
        both, taken = _tensor(np.concatenate([obs, next_obs])), _tensor(actions)
        phi, next_phi = self.modules["features"]({"obs": both})[0].chunk(2)
        predicted = self.modules["prediction"](torch.cat([phi, taken], dim=1))
        missed = 0.5 * (predicted - next_phi).square().sum(dim=1)
        logits = self.modules["inverse"](torch.cat([phi, next_phi], dim=1)).split(self.counts, dim=1)
        logp = torch.cat([part.log_softmax(dim=1) for part in logits], dim=1)
        self.step((1.0 - self.beta) * -(taken * logp).sum(dim=1).mean() + self.beta * missed.mean())
        return _array(missed)


class DistillationNetworks(Networks):
    """A random network, and one that learns to foretell it; see `RND`.

    Args:
        obs_space: Preprocessed observation space.
        action_space: The environment's action space.
        embed_dim: Size of what is foretold.
        config: The `model` section of both networks.
        lr: Learning rate.
        seed: Of the initial weights.
    """

    def __init__(
        self, obs_space: Any, action_space: Any, *, embed_dim: int, config: dict[str, Any], lr: float, seed: int
    ) -> None:
        with _seeded(seed):
            made = {name: _features(obs_space, action_space, embed_dim, config) for name in ("target", "prediction")}
        super().__init__(made, ("prediction",), lr)

    def learn(self, obs: Array) -> Array:
        """Returns the mean squared error of each row, float32 `[B]`, then does a step on their mean."""
        given = {"obs": _tensor(obs)}
        with torch.no_grad():
            target = self.modules["target"](given)[0]
        missed = (self.modules["prediction"](given)[0] - target).square().mean(dim=1)
        self.step(missed.mean())
        return _array(missed)


class RandomEncoder(Networks):
    """A random network that stays as it is; see `RE3`.

    Args:
        obs_space: Preprocessed observation space.
        action_space: The environment's action space.
        embeds_dim: Size of the features.
        config: The `model` section of the network.
        seed: Of the weights.
    """

    def __init__(self, obs_space: Any, action_space: Any, embeds_dim: int, config: dict[str, Any], seed: int) -> None:
        with _seeded(seed):
            super().__init__({"encoder": _features(obs_space, action_space, embeds_dim, config)})

    def encode(self, obs: Array) -> Array:
        """Returns features, float32 `[B, D]`, of observations `[B, ...]`."""
        with torch.no_grad():
            return _array(self.modules["encoder"]({"obs": _tensor(obs)})[0])


class _Dense(nn.ModuleList):
    """Dense layers with Xavier-uniform weights; the last one is linear."""

    def __init__(self, in_size: int, hidden: Hidden, out_size: int) -> None:
        widths, self.activation = [in_size, *hidden[0], out_size], activation_function(hidden[1])
        super().__init__(nn.Linear(a, b) for a, b in pairwise(widths))
        for layer in self:
            nn.init.xavier_uniform_(layer.weight)  # type: ignore[arg-type]  # all are linear
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        for layer in list(self)[:-1]:
            x = layer(x) if self.activation is None else self.activation(layer(x))
        made: Tensor = self[-1](x)
        return made


def _features(obs_space: Any, action_space: Any, size: int, config: dict[str, Any]) -> nn.Module:
    """Returns a model from observations to `size` features, without a value head."""
    model = features_class(obs_space, config, "torch")
    made: nn.Module = ModelCatalog.get_model_v2(obs_space, action_space, size, config, "torch", default_model=model)
    return made


def _seeded(seed: int) -> Any:
    """Returns a context in which torch draws from a stream of this seed; the old one goes on afterwards."""
    return _Seeded(seed)


class _Seeded:
    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __enter__(self) -> None:
        self._saved = torch.get_rng_state()
        torch.manual_seed(self.seed)

    def __exit__(self, *exc: object) -> None:
        torch.set_rng_state(self._saved)


def _array(tensor: Tensor) -> Array:
    return tensor.detach().numpy().copy()


def _tensor(array: Any) -> Tensor:
    """Returns a copy of an array as a tensor, float32 where it is floating."""
    made = torch.tensor(np.asarray(array))
    return made.float() if made.is_floating_point() else made
