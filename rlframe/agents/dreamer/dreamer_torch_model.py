"""Dreamer's networks: what is seen becomes a state, the state dreams on, and says what it would see, gain and do.

A state is `[mean, std, stoch, deter]`: the moments of a Gaussian `[..., S]`, a sample of it, and the GRU's state, which
is `[..., D]`. Features, which all other networks are given, are `stoch` and `deter` side by side. A is the width of
actions, E that of what an encoder makes of an observation. Without `noise`, PyTorch's global stream is drawn from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributions as td
from torch.nn.functional import softplus

from rlframe.data.columns import OBS
from rlframe.models.modelv2 import OBS_FLAT
from rlframe.models.torch.torch_modelv2 import TorchModelV2

#: Class of an activation; None takes the network's usual one.
ActFunc = Any
State = list[Tensor]

#: Column of the noise with which acting samples its state, float32 `[B, S]`; without it the state is the mean.
POSTERIOR_NOISE = "posterior_noise"
#: Pictures are of this size.
IMAGE_SIZE = 64
SMALLEST_STD = 0.1


class _Glorot:
    """Begins with Glorot's uniform weights, and without bias."""

    def reset_parameters(self: Any) -> None:
        nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)


class Linear(_Glorot, nn.Linear):
    """A dense layer."""


class Conv2d(_Glorot, nn.Conv2d):
    """A convolution."""


class ConvTranspose2d(_Glorot, nn.ConvTranspose2d):
    """A transposed convolution."""


class GRUCell(nn.GRUCell):
    """A step of a GRU, with orthogonal weights of its state."""

    def reset_parameters(self) -> None:
        """Draws weights."""
        nn.init.xavier_uniform_(self.weight_ih)
        nn.init.orthogonal_(self.weight_hh)
        nn.init.zeros_(self.bias_ih)
        nn.init.zeros_(self.bias_hh)


class TanhBijector(td.transforms.TanhTransform):
    """tanh, whose inverse is finite also at -1 and 1, where rounding brings actions."""

    def _inverse(self, y: Tensor) -> Tensor:
        return torch.atanh(y.clamp(-0.99999997, 0.99999997))


def dense(input_size: int, output_size: int, layers: int, units: int, act: ActFunc) -> nn.Sequential:
    """Returns dense layers with an activation each, and a linear one."""
    sizes = [input_size, *[units] * layers]
    hidden = [part for i in range(layers) for part in (Linear(sizes[i], sizes[i + 1]), act())]
    return nn.Sequential(*hidden, Linear(sizes[-1], output_size))


def sample(mean: Tensor, std: Tensor, noise: Tensor | None) -> Tensor:
    """Returns mean + std · noise, of fresh noise where there is none."""
    return mean + std * (torch.randn_like(mean) if noise is None else noise)


def gaussian(mean: Tensor, std: Tensor | float) -> td.Normal:
    """Returns Gaussians, unchecked: what is NaN is found in the loss, and named."""
    return td.Normal(mean, std, validate_args=False)


class ConvEncoder(nn.Module):
    """Makes E = 32 · depth numbers of a picture `[..., C, 64, 64]`.

    Args:
        depth: Channels of the first convolution; the others have 2, 4 and 8 times as many.
        act: Activation; ReLU.
        shape: Shape of pictures, channels first.
    """

    def __init__(
        self, depth: int = 32, act: ActFunc = None, shape: Sequence[int] = (3, IMAGE_SIZE, IMAGE_SIZE)
    ) -> None:
        super().__init__()
        self.depth, self.shape, act = depth, tuple(shape), act or nn.ReLU
        channels = [shape[0], depth, 2 * depth, 4 * depth, 8 * depth]
        layers = [Conv2d(channels[i], channels[i + 1], 4, stride=2) for i in range(4)]
        self.model = nn.Sequential(*[part for layer in layers for part in (layer, act())])

    def forward(self, x: Tensor) -> Tensor:
        """Returns `[..., E]`."""
        made: Tensor = self.model(x.reshape(-1, *self.shape))
        return made.reshape(*x.shape[:-3], 32 * self.depth)


class ConvDecoder(nn.Module):
    """Says which picture is seen, as a Gaussian of variance 1 for each number of it.

    Args:
        input_size: Width of features.
        depth: As of the encoder.
        act: Activation; ReLU.
        shape: Shape of pictures, channels first.
    """

    def __init__(
        self, input_size: int, depth: int = 32, act: ActFunc = None,
        shape: Sequence[int] = (3, IMAGE_SIZE, IMAGE_SIZE),
    ) -> None:  # fmt: skip
        super().__init__()
        self.shape, act = tuple(shape), act or nn.ReLU
        self.model = nn.Sequential(
            Linear(input_size, 32 * depth), nn.Unflatten(-1, (32 * depth, 1, 1)),
            ConvTranspose2d(32 * depth, 4 * depth, 5, stride=2), act(),
            ConvTranspose2d(4 * depth, 2 * depth, 5, stride=2), act(),
            ConvTranspose2d(2 * depth, depth, 6, stride=2), act(),
            ConvTranspose2d(depth, shape[0], 6, stride=2),
        )  # fmt: skip

    def forward(self, x: Tensor) -> td.Distribution:
        """Returns the distribution of pictures `[..., C, 64, 64]`."""
        mean = self.model(x.flatten(0, -2)).reshape(*x.shape[:-1], *self.shape)
        return td.Independent(gaussian(mean, 1.0), 3, validate_args=False)


class DenseDecoder(nn.Module):
    """Says a number, or a vector, as a Gaussian of variance 1, or whether something is so.

    Args:
        input_size: Width of features.
        output_size: Width of what is said; a width of 1 is a number.
        layers: Hidden layers.
        units: Their width.
        dist: "normal" or "binary".
        act: Activation; ELU.

    Raises:
        ValueError: If `dist` is none of these.
    """

    def __init__(
        self, input_size: int, output_size: int, layers: int, units: int, dist: str = "normal", act: ActFunc = None
    ) -> None:
        super().__init__()
        if dist not in ("normal", "binary"):
            raise ValueError(f"DenseDecoder: got dist={dist!r}, wanted 'normal' or 'binary'")
        self.dist, self.output_size = dist, output_size
        self.model = dense(input_size, output_size, layers, units, act or nn.ELU)

    def forward(self, x: Tensor) -> td.Distribution:
        """Returns the distribution of `[...]` numbers, or vectors `[..., output_size]`."""
        x, event = self.model(x), int(self.output_size > 1)
        x = x if event else x.squeeze(-1)
        said = gaussian(x, 1.0) if self.dist == "normal" else td.Bernoulli(logits=x, validate_args=False)
        return td.Independent(said, event, validate_args=False)


class ActionDecoder(nn.Module):
    """The actor: a Gaussian that tanh squashes into [-1, 1].

    Args:
        input_size: Width of features.
        action_size: A.
        layers: Hidden layers.
        units: Their width.
        dist: "tanh_normal", the only one.
        act: Activation; ReLU.
        min_std: Smallest standard deviation before squashing.
        init_std: That to begin with.
        mean_scale: Largest mean before squashing.

    Raises:
        ValueError: If `dist` is another.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - RLlib's
        self, input_size: int, action_size: int, layers: int, units: int, dist: str = "tanh_normal",
        act: ActFunc = None, min_std: float = 1e-4, init_std: float = 5.0, mean_scale: float = 5.0,
    ) -> None:  # fmt: skip
        super().__init__()
        if dist != "tanh_normal":
            raise ValueError(f"ActionDecoder: got dist={dist!r}, wanted 'tanh_normal': actions are continuous")
        self.min_std, self.init_std, self.mean_scale = min_std, init_std, mean_scale
        self.model = dense(input_size, 2 * action_size, layers, units, act or nn.ReLU)

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns mean and standard deviation before squashing, `[..., A]` each."""
        mean, std = self.model(x).chunk(2, dim=-1)
        mean = self.mean_scale * torch.tanh(mean / self.mean_scale)
        return mean, softplus(std + math.log(math.expm1(self.init_std))) + self.min_std

    def forward(self, x: Tensor) -> td.Distribution:
        """Returns the distribution of actions `[..., A]`."""
        squashed = td.TransformedDistribution(gaussian(*self.moments(x)), [TanhBijector()], validate_args=False)
        return td.Independent(squashed, 1, validate_args=False)


class RSSM(nn.Module):
    """The recurrent state-space model: a GRU, a prior of what comes, and a posterior that has seen it.

        deter_t = GRU(deter_{t-1}, [stoch_{t-1}, a_{t-1}])
        prior(stoch_t | deter_t),    posterior(stoch_t | deter_t, o_t)

    Args:
        action_size: A.
        embed_size: E.
        stoch: Width S of the stochastic state.
        deter: Width D of the deterministic one.
        hidden: Width of the layers in between.
        act: Activation; ELU.

    Source: Hafner et al. 2019, "Learning Latent Dynamics for Planning from Pixels", section 3.
    """

    def __init__(
        self, action_size: int, embed_size: int, stoch: int = 30, deter: int = 200, hidden: int = 200,
        act: ActFunc = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.stoch_size, self.deter_size, self.hidden_size = stoch, deter, hidden
        self.act = (act or nn.ELU)()
        self.obs1, self.obs2 = Linear(embed_size + deter, hidden), Linear(hidden, 2 * stoch)
        self.cell = GRUCell(hidden, deter)
        self.img1, self.img2 = Linear(stoch + action_size, hidden), Linear(deter, hidden)
        self.img3 = Linear(hidden, 2 * stoch)

    def get_initial_state(self, batch_size: int) -> State:
        """Returns zeros, `[batch_size, ...]`."""
        sizes = [self.stoch_size] * 3 + [self.deter_size]
        return [torch.zeros(batch_size, size, device=self.obs1.weight.device) for size in sizes]

    def img_step(self, prev_state: State, prev_action: Tensor, noise: Tensor | None = None) -> State:
        """Returns the state that the prior expects behind an action; noise is `[..., S]`."""
        x = self.act(self.img1(torch.cat([prev_state[2], prev_action], -1)))
        deter = self.cell(x, prev_state[3])
        return self._state(self.img3(self.act(self.img2(deter))), deter, noise)

    def obs_step(
        self, prev_state: State, prev_action: Tensor, embed: Tensor, noise: Tensor | None = None
    ) -> tuple[State, State]:
        """Returns the states of posterior and prior behind an action, for what is seen there, `[..., E]`."""
        prior = self.img_step(prev_state, prev_action)
        x = self.act(self.obs1(torch.cat([prior[3], embed], -1)))
        return self._state(self.obs2(x), prior[3], noise), prior

    def _state(self, outputs: Tensor, deter: Tensor, noise: Tensor | None) -> State:
        mean, raw = outputs.chunk(2, dim=-1)
        std = softplus(raw) + SMALLEST_STD
        return [mean, std, sample(mean, std, noise), deter]

    def observe(
        self, embed: Tensor, action: Tensor, state: State | None = None, noise: Tensor | None = None
    ) -> tuple[State, State]:
        """Returns the states of posterior and prior at each step of some sequences, `[B, T, ...]`.

        Args:
            embed: What was seen. Float `[B, T, E]`.
            action: The actions before. Float `[B, T, A]`.
            state: States before, zeros where not given.
            noise: Of the posterior. Float `[B, T, S]`.
        """
        last, made = self.get_initial_state(len(action)) if state is None else state, []
        for step in range(action.shape[1]):
            drawn = None if noise is None else noise[:, step]
            made.append(self.obs_step(last, action[:, step], embed[:, step], drawn))
            last = made[-1][0]
        post, prior = (
            [torch.stack(part, 1) for part in zip(*states, strict=True)] for states in zip(*made, strict=True)
        )
        return post, prior

    def imagine(self, action: Tensor, state: State | None = None) -> State:
        """Returns the states that the prior expects behind given actions `[B, T, A]`, `[B, T, ...]`."""
        last, made = self.get_initial_state(len(action)) if state is None else state, []
        for step in range(action.shape[1]):
            last = self.img_step(last, action[:, step])
            made.append(last)
        return [torch.stack(part, 1) for part in zip(*made, strict=True)]

    def get_feature(self, state: State) -> Tensor:
        """Returns features, `[..., S + D]`."""
        return torch.cat([state[2], state[3]], -1)

    def get_dist(self, mean: Tensor, std: Tensor) -> td.Normal:
        """Returns the distribution of `stoch`, each number by itself."""
        return gaussian(mean, std)


class DreamerModel(TorchModelV2, nn.Module):
    """All of Dreamer's networks: `encoder`, `decoder`, `reward`, `dynamics`, `actor` and `value`, by RLlib's names.

    Pictures of 64 × 64 pass convolutions, all else dense layers. With `predict_termination` there is `continues`, too.
    A state that acting keeps is `[mean, std, stoch, deter, action]`.

    Args:
        obs_space: Preprocessed observation space.
        action_space: Action space, a Box `[A]`.
        num_outputs: 2A, means and logarithms of standard deviations before squashing.
        model_config: The section `dreamer_model` of the config.
        name: Name of the model.
    """

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, model_config: dict[str, Any], name: str
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        depth, hidden = model_config["depth_size"], model_config["hidden_size"]
        stoch, deter = model_config["stoch_size"], model_config["deter_size"]
        feature = stoch + deter
        self.action_size = int(action_space.shape[0])
        self.channels_first, self.image_shape = picture_layout(obs_space.shape)
        if self.image_shape:
            self.encoder: nn.Module = ConvEncoder(depth, shape=self.image_shape)
            self.decoder: nn.Module = ConvDecoder(feature, depth, shape=self.image_shape)
        else:
            self.encoder = nn.Sequential(dense(obs_space.shape[0], hidden, 1, hidden, nn.ELU), nn.ELU())
            self.decoder = DenseDecoder(feature, int(obs_space.shape[0]), 2, hidden)
        self.reward = DenseDecoder(feature, 1, 2, hidden)
        self.dynamics = RSSM(self.action_size, 32 * depth if self.image_shape else hidden, stoch, deter, deter)
        self.actor = ActionDecoder(feature, self.action_size, 4, hidden, init_std=model_config["action_init_std"])
        self.value = DenseDecoder(feature, 1, 3, hidden)
        if model_config["predict_termination"]:
            self.continues = DenseDecoder(feature, 1, 3, hidden, dist="binary")

    def seen(self, obs: Tensor) -> Tensor:
        """Returns preprocessed observations as encoder and decoder have them: floats, pictures with channels first.

        Bytes are scaled to [-0.5, 0.5].
        """
        obs = obs / 255.0 - 0.5 if obs.dtype == torch.uint8 else obs.float()
        return obs.movedim(-1, -3) if self.image_shape and not self.channels_first else obs

    def get_initial_state(self) -> State:
        """Returns the state before the first observation, zeros without a batch dimension."""
        state = [part[0] for part in self.dynamics.get_initial_state(1)]
        return [*state, torch.zeros(self.action_size, device=state[0].device)]

    def forward(self, input_dict: Any, state: State, seq_lens: Any) -> tuple[Tensor, State]:
        """Returns the actor's outputs `[B, 2A]`, and states, with the action that it takes without exploration."""
        del seq_lens
        obs = input_dict[OBS] if self.image_shape else input_dict[OBS_FLAT]
        noise = input_dict.get(POSTERIOR_NOISE)
        noise = torch.zeros_like(state[2]) if noise is None else noise
        post, _ = self.dynamics.obs_step(state[:4], state[4], self.encoder(self.seen(obs)), noise)
        mean, std = self.actor.moments(self.dynamics.get_feature(post))
        return torch.cat([mean, std.log()], -1), [*post, torch.tanh(mean)]

    def policy(self, obs: Tensor, state: State | None, explore: bool = True) -> tuple[Tensor, Tensor, State]:
        """Returns actions `[B, A]`, their log-likelihoods `[B]`, and states with these actions.

        States without a batch dimension, as of `get_initial_state`, are those of all rows; None begins with these.
        """
        state = [part.expand(len(obs), part.shape[-1]) for part in state or self.get_initial_state()]
        post, _ = self.dynamics.obs_step(state[:4], state[4], self.encoder(self.seen(obs)))
        chosen = self.actor(self.dynamics.get_feature(post))
        action = chosen.rsample() if explore else torch.tanh(chosen.base_dist.base_dist.mean)
        return action, chosen.log_prob(action), [*post, action]

    def imagine_ahead(self, state: State, horizon: int, noise: Tensor | None = None) -> Tensor:
        """Returns features of what the actor would live through, float `[horizon, N, S + D]`.

        Gradients flow back through all steps to the actor, but not to the states at the beginning.

        Args:
            state: States of N steps to begin with, `[..., ...]`; what is before the last dimension is N.
            horizon: H.
            noise: Of actions, then of states. Float `[N, H, A + S]`.
        """
        last, features = [part.detach().reshape(-1, part.shape[-1]) for part in state], []
        sizes = [self.action_size, last[0].shape[-1]]
        for step in range(horizon):
            of_action, of_state = (None, None) if noise is None else noise[:, step].split(sizes, -1)
            moments = self.actor.moments(self.dynamics.get_feature(last).detach())
            last = self.dynamics.img_step(last, torch.tanh(sample(*moments, of_action)), of_state)
            features.append(self.dynamics.get_feature(last))
        return torch.stack(features)


def picture_layout(shape: Sequence[int]) -> tuple[bool, tuple[int, ...]]:
    """Returns whether channels come first, and the shape of pictures with channels first, () where it is none.

    Pictures are `[C, 64, 64]` or `[64, 64, C]`.
    """
    if len(shape) == 3 and tuple(shape[1:]) == (IMAGE_SIZE, IMAGE_SIZE):
        return True, tuple(map(int, shape))
    if len(shape) == 3 and tuple(shape[:2]) == (IMAGE_SIZE, IMAGE_SIZE):
        return False, (int(shape[2]), IMAGE_SIZE, IMAGE_SIZE)
    return False, ()
